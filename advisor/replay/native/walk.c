/* advisor.replay._walk: nodes of a replay one by one. What advisor.replay.walk.in_python does, in the same order. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

enum { BEFORE, AFTER, OTHER, LAG, OWN, MORE, MORE_SLOT, MORE_LAG, COLUMNS };

typedef struct {
    const int64_t *before, *other, *more, *more_slot;
    const double *after, *lag, *own, *more_lag;
    Py_ssize_t nodes, further;
} Rows;

/* Whether every node waited for something that stands before it. */
static int walk(const Rows *rows, double *done, int64_t at) {
    Py_ssize_t edge = 0;
    for (Py_ssize_t node = 0; node < rows->nodes; node++, at++) {
        int64_t before = rows->before[node], other = rows->other[node];
        if (before < 0 || before >= at || other < 0 || other >= at) return 0;
        double ready = done[before] + rows->after[node], held = done[other] + rows->lag[node];
        if (held > ready) ready = held;
        for (; edge < rows->further && rows->more[edge] == node; edge++) {
            int64_t slot = rows->more_slot[edge];
            if (slot < 0 || slot >= at) return 0;
            held = done[slot] + rows->more_lag[edge];
            if (held > ready) ready = held;
        }
        done[at] = ready + rows->own[node];
    }
    return edge == rows->further;
}

PyDoc_STRVAR(walk_doc, "walk(done, at, columns)\n--\n\n"
    "Writes when each node is done to `done`, from `at` on; what it waits for stands before it.");

static PyObject *walk_rows(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer done, in[COLUMNS];
    Py_ssize_t at, size = sizeof(double);
    if (!PyArg_ParseTuple(args, "w*n(y*y*y*y*y*y*y*y*)", &done, &at, &in[BEFORE], &in[AFTER], &in[OTHER], &in[LAG], &in[OWN],
                          &in[MORE], &in[MORE_SLOT], &in[MORE_LAG]))
        return NULL;
    Rows rows = {in[BEFORE].buf, in[OTHER].buf, in[MORE].buf, in[MORE_SLOT].buf, in[AFTER].buf, in[LAG].buf,
                 in[OWN].buf, in[MORE_LAG].buf, in[BEFORE].len / size, in[MORE].len / size};
    int fits = at >= 0 && at <= done.len / size - rows.nodes;
    for (int column = 0; column < COLUMNS; column++) fits &= in[column].len == in[column < MORE ? BEFORE : MORE].len;
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        fits = walk(&rows, done.buf, at);
        Py_END_ALLOW_THREADS
    }
    for (int column = 0; column < COLUMNS; column++) PyBuffer_Release(&in[column]);
    PyBuffer_Release(&done);
    if (fits) Py_RETURN_NONE;
    PyErr_SetString(PyExc_IndexError, "a node waits for one that stands behind it");
    return NULL;
}

static PyMethodDef methods[] = {{"walk", walk_rows, METH_VARARGS, walk_doc}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_walk", "Nodes of a replay one by one.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__walk(void) { return PyModuleDef_Init(&module); }
