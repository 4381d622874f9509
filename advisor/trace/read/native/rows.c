#include "rows.h"

#include <string.h>

#include "values.h"

/* A thread's category, pid and tid together. */
#define LONGEST_PLACE 512

typedef struct {
    int64_t event[FIELDS], memory[MEMORY_FIELDS];
    Span name, category, pid, tid;
    char phase;
    int has_args, is_rare;
    unsigned context; /* rows of one phase and category hold like things */
} Row;

/* Where a list stands, and its size. `last` is foreseen, and need not be looked through. */
static inline const char *place_at(Scan *scan, const char *p, Span *last, int64_t at_and_size[2]) {
    Span json = {p, last->size, 0};
    if (last->size && (size_t)(scan->end - p) >= last->size && same_bytes(p, last->at, last->size)) {
        p += last->size;
    } else {
        if ((p = span_at(p, scan->end, &json)) == NULL) return NULL;
        if (*json.at == '[') *last = json;
    }
    at_and_size[0] = json.at - scan->start;
    at_and_size[1] = (int64_t)json.size;
    return p;
}

/* What becomes of a value. */
enum { IGNORED, TIME, INTEGER, OF_MEMORY, BLOCKS, SHAPES, SHAPES_OF_2021, TYPES, STACK, STRIDES, VALUES, RARE,
       PHASE, NAME, CATEGORY, PID, TID, ARGS };

#define KEY(text, how, field) {text, sizeof(text) - 1, how, field}
#define NO_KEY {NULL, 0, IGNORED, 0}

static const Key ROW_KEYS[] = {
    KEY("ph", PHASE, 0), KEY("cat", CATEGORY, 0), KEY("name", NAME, 0), KEY("pid", PID, 0), KEY("tid", TID, 0),
    KEY("ts", TIME, F_start), KEY("dur", TIME, F_dur), KEY("args", ARGS, 0), NO_KEY,
};

static const Key ARGS_KEYS[] = {
    KEY("External id", INTEGER, F_external), KEY("external id", INTEGER, F_external_2021),
    KEY("correlation", INTEGER, F_correlation), KEY("device", INTEGER, F_device), KEY("stream", INTEGER, F_stream),
    KEY("bytes", INTEGER, F_bytes), KEY("grid", BLOCKS, F_blocks), KEY("Sequence number", INTEGER, F_sequence),
    KEY("Fwd thread id", INTEGER, F_forward), KEY("Python id", INTEGER, F_python_id),
    KEY("Python parent id", INTEGER, F_python_parent), KEY("Input Dims", SHAPES, F_dims),
    KEY("Input dims", SHAPES_OF_2021, F_dims), KEY("Input type", TYPES, F_dtypes), KEY("Call stack", STACK, F_stack),
    KEY("Input Strides", STRIDES, F_strides_at), KEY("Concrete Inputs", VALUES, F_values_at),
    KEY("Bytes", OF_MEMORY, M_bytes), KEY("Total Allocated", OF_MEMORY, M_allocated),
    KEY("Total Reserved", OF_MEMORY, M_reserved), KEY("Device Type", OF_MEMORY, M_device_type),
    KEY("Device Id", OF_MEMORY, M_device), KEY("Addr", OF_MEMORY, M_address),
    KEY("Collective name", RARE, 0), KEY("wait_on_stream", RARE, 0),
    KEY("wait_on_cuda_event_record_corr_id", RARE, 0), NO_KEY,
};

static const char *args_at(Scan *scan, Row *row, const char *p);

static inline const char *phase_at(const char *p, const char *end, Row *row) {
    Span text;
    if ((p = string_at(p, end, &text)) == NULL || text.size != 1 || row->phase) return NULL;
    row->phase = *text.at;
    row->context = (row->context + (unsigned char)row->phase) % CONTEXTS;
    return p;
}

static inline const char *category_at(const char *p, const char *end, Row *row) {
    if ((p = span_at(p, end, &row->category)) == NULL) return NULL;
    const Span *category = &row->category;
    row->context = (row->context + (unsigned)category->size + (unsigned char)category->at[category->size / 2]) % CONTEXTS;
    return p;
}

/* The value of a key of a row or of its `args`. */
static inline const char *field_at(Scan *scan, Row *row, const Key *key, const char *p) {
    const char *end = scan->end;
    int64_t *event = &row->event[key->field];
    switch (key->how) {
    case TIME: return time_at(p, end, event);
    case INTEGER: return integer_at(p, end, event);
    case OF_MEMORY: return integer_at(p, end, &row->memory[key->field]);
    case BLOCKS: return blocks_at(p, end, event);
    case SHAPES_OF_2021: /* the other spelling holds where both are stated */
        return *event >= 0 ? skip_value(p, end, 0) : list_at(p, end, &scan->tables[T_dims], row->context, event);
    case SHAPES: return list_at(p, end, &scan->tables[T_dims], row->context, event);
    case TYPES: return list_at(p, end, &scan->tables[T_dtypes], row->context, event);
    case STACK: return text_at(p, end, &scan->tables[T_stacks], row->context, event);
    case STRIDES: return place_at(scan, p, &scan->strides[row->context], event);
    case VALUES: return place_at(scan, p, &scan->values[row->context], event);
    case PHASE: return phase_at(p, end, row);
    case NAME: return string_at(p, end, &row->name);
    case CATEGORY: return category_at(p, end, row);
    case PID: return span_at(p, end, &row->pid);
    case TID: return span_at(p, end, &row->tid);
    case ARGS: return args_at(scan, row, p);
    case RARE: row->is_rare = 1; break;
    default: break;
    }
    return p < end && is_digit(*p) ? skip_number(p, end) : skip_value(p, end, 0);
}

/* The members of a row or of its `args`, from behind the `{` to behind the `}`. */
static inline const char *members_at(Scan *scan, Row *row, Keys *keys, const Key *known, const char *p) {
    const char *end = scan->end;
    for (int number = FIRST;;) {
        int key;
        const char *value = foreseen_key(keys, row->context, p, end, &number, &key);
        if (value == NULL) {
            const char *close = after_blanks(p, end);
            if (close < end && *close == '}') return close + 1;
            if ((value = next_key(keys, known, row->context, p, end, &number, &key)) == NULL) return NULL;
        }
        if ((p = field_at(scan, row, &known[key], value)) == NULL) return NULL;
    }
}

static const char *args_at(Scan *scan, Row *row, const char *p) {
    if (row->has_args++) return NULL; /* which of two would hold is not ours to say */
    if (is_null(p, scan->end)) return p + 4;
    return p < scan->end && *p == '{' ? members_at(scan, row, &scan->keys_of_args, ARGS_KEYS, p + 1) : NULL;
}

/* Whether a line of the same size consists of these. */
static inline int is_place(const char *line, const Span *const *parts) {
    for (int part = 0; part < 3; line += parts[part++]->size + 1) {
        if (!same_bytes(line, parts[part]->at, parts[part]->size) || line[parts[part]->size] != '\n') return 0;
    }
    return 1;
}

/* The number of a row's category, pid and tid as they stand, one a line. */
static int64_t place_of(Scan *scan, const Row *row) {
    const Span *parts[] = {&row->category, &row->pid, &row->tid};
    size_t size = 3;
    char line[LONGEST_PLACE], *to = line;
    for (int part = 0; part < 3; part++) size += parts[part]->size;
    if (size > LONGEST_PLACE) return -1;
    Texts *places = &scan->tables[T_places];
    const Text *last = texts_last(places, row->context);
    if (last != NULL && last->size == size && is_place(last->at, parts)) return places->last[row->context];
    for (int part = 0; part < 3; part++) {
        if (parts[part]->size) memcpy(to, parts[part]->at, parts[part]->size);
        to += parts[part]->size;
        *to++ = '\n';
    }
    return texts_again(places, row->context, line, size);
}

static int put(Columns *columns, const int64_t *values, int fields) {
    if (columns->used == columns->rows) return 0;
    int64_t *to = columns->room + columns->used;
    for (int field = 0; field < fields; field++, to += columns->rows) *to = values[field];
    columns->used++;
    return 1;
}

static inline int is_memory(Span name) { return name.size == 8 && memcmp(name.at, "[memory]", 8) == 0; }

/* Keeps what is wanted of a row that was read; 0 where that cannot be done. */
static int keep(Scan *scan, Row *row, const char *at, const char *end) {
    int64_t whole[] = {at - scan->start, end - at};
    switch (row->phase) {
    case 'X':
        row->event[F_name] = texts_again(&scan->tables[T_names], row->context, row->name.at, row->name.size);
        row->event[F_place] = place_of(scan, row);
        if (row->event[F_name] < 0 || row->event[F_place] < 0) return 0;
        if (row->is_rare) {
            row->event[F_rare_at] = whole[0];
            row->event[F_rare_size] = whole[1];
        }
        return put(&scan->events, row->event, FIELDS);
    case 'i':
        row->memory[M_time] = row->event[F_start];
        return !is_memory(row->name) || put(&scan->memory, row->memory, MEMORY_FIELDS);
    case 'M':
        return put(&scan->labels, whole, 2);
    case 's':
    case 't':
    case 'f':
    case 'C':
        return 1;
    default:
        return 0;
    }
}

static const char *row_at(Scan *scan, const char *p) {
    Row row;
    const char *at = p;
    if (p >= scan->end || *p != '{') return NULL;
    for (int field = 0; field < FIELDS; field++) row.event[field] = NOT_STATED;
    for (int field = 0; field < MEMORY_FIELDS; field++) row.memory[field] = NOT_STATED;
    row.event[F_start] = row.event[F_dur] = ABSENT_TIME;
    row.name = row.category = row.pid = row.tid = (Span){"", 0, 0};
    row.phase = 0;
    row.has_args = row.is_rare = 0;
    row.context = 0;
    if ((p = members_at(scan, &row, &scan->keys_of_rows, ROW_KEYS, p + 1)) == NULL || !keep(scan, &row, at, p)) return NULL;
    return p;
}

const char *scan_rows(Scan *scan) {
    const char *p = after_blanks(scan->start, scan->end), *end = scan->end;
    memset(scan->strides, 0, sizeof scan->strides);
    memset(scan->values, 0, sizeof scan->values);
    if (p >= end || *p != '[') return NULL;
    p = after_blanks(p + 1, end);
    if (p < end && *p == ']') return p + 1;
    for (;;) {
        if ((p = row_at(scan, p)) == NULL) return NULL;
        p = after_blanks(p, end);
        if (p >= end) return NULL;
        if (*p == ']') return p + 1;
        if (*p != ',') return NULL;
        p = after_blanks(p + 1, end);
    }
}
