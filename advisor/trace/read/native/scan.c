/* advisor.trace.read._scan: the ordinary rows of a trace, to columns. See rows.c; used by advisor.trace.read.native_columns. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "rows.h"

#define NAME(name) #name,

typedef struct {
    PyObject_HEAD
    Scan scan;
    int busy;
} Scanner;

static int scanner_init(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"seed", NULL};
    unsigned long long seed;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "K", names, &seed)) return -1;
    for (int table = 0; table < ALL_TABLES; table++) ((Scanner *)self)->scan.tables[table].seed = seed;
    return 0;
}

static void scanner_free(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    for (int table = 0; table < ALL_TABLES; table++) texts_free(&((Scanner *)self)->scan.tables[table]);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static Columns columns_in(const Py_buffer *buffer, int fields) {
    return (Columns){buffer->buf, buffer->len / (Py_ssize_t)sizeof(int64_t) / fields, 0};
}

PyDoc_STRVAR(read_doc, "read(text, events, memory, labels)\n--\n\n"
    "Reads a JSON list of rows into three buffers of 64-bit integers, field after field (EVENT_FIELDS,\n"
    "MEMORY_FIELDS; where rows of names start and how long they are). How many rows each holds, and where the list\n"
    "ends; None where the text is not plain, or does not fit. Other threads run meanwhile; two must not use the same\n"
    "Scanner.");

static PyObject *scanner_read(PyObject *self, PyObject *args) {
    Scanner *scanner = (Scanner *)self;
    Scan *scan = &scanner->scan;
    Py_buffer text, events, memory, labels;
    if (!PyArg_ParseTuple(args, "y*w*w*w*", &text, &events, &memory, &labels)) return NULL;
    const char *end = NULL;
    int busy = scanner->busy;
    if (!busy) {
        scanner->busy = 1;
        scan->start = text.buf;
        scan->end = scan->start + text.len;
        scan->events = columns_in(&events, FIELDS);
        scan->memory = columns_in(&memory, MEMORY_FIELDS);
        scan->labels = columns_in(&labels, 2);
        Py_BEGIN_ALLOW_THREADS
        end = scan_rows(scan);
        Py_END_ALLOW_THREADS
        scanner->busy = 0;
    }
    PyObject *counts = NULL;
    if (busy)
        PyErr_SetString(PyExc_RuntimeError, "another thread reads with this Scanner");
    else if (end != NULL)
        counts = Py_BuildValue("LLLn", (long long)scan->events.used, (long long)scan->memory.used,
                               (long long)scan->labels.used, (Py_ssize_t)(end - scan->start));
    else
        counts = Py_NewRef(Py_None);
    PyBuffer_Release(&text);
    PyBuffer_Release(&events);
    PyBuffer_Release(&memory);
    PyBuffer_Release(&labels);
    return counts;
}

static PyObject *untold(Texts *texts) {
    PyObject *list = PyList_New(texts->count - texts->told);
    for (int32_t at = 0; list != NULL && at < texts->count - texts->told; at++) {
        const Text *text = &texts->known[texts->told + at];
        PyObject *bytes = PyBytes_FromStringAndSize(text->at, (Py_ssize_t)text->size);
        if (bytes == NULL || PyList_SetItem(list, at, bytes) < 0) Py_CLEAR(list);
    }
    if (list != NULL) texts->told = texts->count;
    return list;
}

PyDoc_STRVAR(number_doc, "number(name, text, places)\n--\n\n"
    "Puts the numbers of texts in place of where they start in `text`; their sizes stand behind all starts. -1 stays -1.\n"
    "Returns the texts of that table (one of LATER_TABLES) that were not told yet.");

static PyObject *scanner_number(PyObject *self, PyObject *args) {
    static const char *const names[] = {FOR_EACH_LATER_TABLE(NAME)};
    const char *name;
    Py_buffer text, places;
    Texts *table = NULL;
    if (!PyArg_ParseTuple(args, "sy*w*", &name, &text, &places)) return NULL;
    for (int later = 0; later < ALL_TABLES - TABLES; later++) {
        if (strcmp(name, names[later]) == 0) table = &((Scanner *)self)->scan.tables[TABLES + later];
    }
    Py_ssize_t count = places.len / (Py_ssize_t)sizeof(int64_t) / 2;
    int64_t *starts = places.buf, *sizes = starts + count;
    int failed = table == NULL;
    for (Py_ssize_t row = 0; row < count && !failed; row++) {
        if (starts[row] < 0) continue;
        failed = sizes[row] < 0 || starts[row] > text.len || sizes[row] > text.len - starts[row];
        if (failed) break;
        starts[row] = texts_number(table, (const char *)text.buf + starts[row], (size_t)sizes[row]);
        failed = starts[row] < 0;
    }
    PyBuffer_Release(&text);
    PyBuffer_Release(&places);
    if (!failed) return untold(table);
    PyErr_SetString(PyExc_ValueError, "no such texts");
    return NULL;
}

PyDoc_STRVAR(fresh_doc, "fresh()\n--\n\nThe texts of each of TABLES that were not told yet, in order of their numbers.");

static PyObject *scanner_fresh(PyObject *self, PyObject *Py_UNUSED(ignored)) {
    PyObject *tables = PyTuple_New(TABLES);
    for (int table = 0; tables != NULL && table < TABLES; table++) {
        PyObject *texts = untold(&((Scanner *)self)->scan.tables[table]);
        if (texts == NULL || PyTuple_SetItem(tables, table, texts) < 0) Py_CLEAR(tables);
    }
    return tables;
}

static PyMethodDef scanner_methods[] = {
    {"read", scanner_read, METH_VARARGS, read_doc},
    {"number", scanner_number, METH_VARARGS, number_doc},
    {"fresh", scanner_fresh, METH_NOARGS, fresh_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot scanner_slots[] = {
    {Py_tp_doc, "Reads slices of one file; numbers of texts hold for all of them. seed: any 64 bits nobody knows."},
    {Py_tp_init, scanner_init},
    {Py_tp_dealloc, scanner_free},
    {Py_tp_methods, scanner_methods},
    {0, NULL},
};

static PyType_Spec scanner_spec = {"advisor.trace.read._scan.Scanner", sizeof(Scanner), 0, Py_TPFLAGS_DEFAULT, scanner_slots};

static int module_exec(PyObject *module) {
    static const char *const fields[] = {FOR_EACH_FIELD(NAME)};
    static const char *const memory[] = {FOR_EACH_MEMORY_FIELD(NAME)};
    static const char *const tables[] = {FOR_EACH_TABLE(NAME)};
    const struct {
        const char *name;
        const char *const *words;
        int count;
    } lists[] = {{"EVENT_FIELDS", fields, FIELDS}, {"MEMORY_FIELDS", memory, MEMORY_FIELDS}, {"TABLES", tables, TABLES}};
    for (int list = 0; list < 3; list++) {
        PyObject *words = PyTuple_New(lists[list].count);
        for (int at = 0; words != NULL && at < lists[list].count; at++) {
            PyObject *word = PyUnicode_FromString(lists[list].words[at]);
            if (word == NULL || PyTuple_SetItem(words, at, word) < 0) Py_CLEAR(words);
        }
        int failed = words == NULL || PyModule_AddObjectRef(module, lists[list].name, words) < 0;
        Py_XDECREF(words);
        if (failed) return -1;
    }
    if (PyModule_AddIntMacro(module, LAYOUT) < 0) return -1;
    PyObject *type = PyType_FromSpec(&scanner_spec);
    int failed = type == NULL || PyModule_AddObjectRef(module, "Scanner", type) < 0;
    Py_XDECREF(type);
    return failed ? -1 : 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_scan", "The ordinary rows of a trace, to columns.", 0, NULL, module_slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__scan(void) { return PyModuleDef_Init(&module); }
