/* Rows of `traceEvents` as Kineto writes them, to columns of 64-bit integers.

   Whatever is written otherwise (exponents, fractions of a byte, other phases) refuses the whole slice: advisor.trace.schema
   knows those. What the fields mean is said there, too. */

#ifndef ADVISOR_ROWS_H
#define ADVISOR_ROWS_H

#include "json.h"
#include "texts.h"

/* Changes with the fields below: advisor.trace.scanned does not use an extension that was built from other sources. */
#define LAYOUT 1

#define ABSENT_TIME INT64_MIN
#define NOT_STATED (-1)
/* From here on a time is none (numbers.py says why), an integer is no longer exact where it was decoded as a float. */
#define LATEST_US ((INT64_C(1) << 61) / 1000)
#define LARGEST ((INT64_C(1) << 53) - 1)
/* A thread's category, pid and tid together. */
#define LONGEST_PLACE 512
/* Product of a launch grid that a float holds exactly. */
#define MOST_BLOCKS 9007199254740992.0

/* Fields of a complete event; those of texts hold numbers of a table, `_at` and `_size` a place in the slice. */
#define FOR_EACH_FIELD(X) \
    X(start) X(dur) X(name) X(place) X(external) X(external_2021) X(correlation) X(device) X(stream) X(bytes) \
    X(sequence) X(forward) X(python_id) X(python_parent) X(dims) X(dtypes) X(stack) X(blocks) \
    X(strides_at) X(strides_size) X(values_at) X(values_size) X(rare_at) X(rare_size)
#define FOR_EACH_MEMORY_FIELD(X) X(time) X(bytes) X(allocated) X(reserved) X(device_type) X(device)
#define FOR_EACH_TABLE(X) X(names) X(places) X(dims) X(dtypes) X(stacks)
/* Of texts that few rows are asked for: numbered when they are. */
#define FOR_EACH_LATER_TABLE(X) X(strides) X(values)

#define FIELD(name) F_##name,
#define MEMORY_FIELD(name) M_##name,
#define TABLE(name) T_##name,
enum { FOR_EACH_FIELD(FIELD) FIELDS };
enum { FOR_EACH_MEMORY_FIELD(MEMORY_FIELD) MEMORY_FIELDS };
enum { FOR_EACH_TABLE(TABLE) TABLES, T_LATER = TABLES - 1, FOR_EACH_LATER_TABLE(TABLE) ALL_TABLES };

typedef struct {
    int64_t *room; /* field after field, `rows` of each */
    int64_t rows, used;
} Columns;

typedef struct {
    Texts tables[ALL_TABLES];
    const char *start, *end; /* of the slice */
    Columns events, memory, labels;
} Scan;

typedef struct {
    int64_t event[FIELDS], memory[MEMORY_FIELDS];
    Span name, category, pid, tid;
    char phase;
    int has_args, is_rare;
} Row;

static inline int is_text(Span span, const char *text, size_t size) {
    return span.size == size && memcmp(span.at, text, size) == 0;
}
#define IS(span, text) is_text(span, text, sizeof(text) - 1)

/* A number, or one that is written as text: some vendors do that. */
static const char *value_at(const char *p, const char *end, Number *number) {
    if (p >= end || *p != '"') return number_at(p, end, number);
    p = number_at(p + 1, end, number);
    return p != NULL && p < end && *p == '"' ? p + 1 : NULL;
}

static const char *time_at(const char *p, const char *end, int64_t *ns) {
    Number number;
    *ns = ABSENT_TIME;
    if (is_null(p, end)) return p + 4;
    if ((p = value_at(p, end, &number)) == NULL || number.too_long || number.whole >= LATEST_US) return NULL;
    *ns = number.whole * 1000 + number.thousandths;
    if (number.negative) *ns = -*ns;
    return p;
}

static const char *integer_at(const char *p, const char *end, int64_t *value) {
    Number number;
    *value = NOT_STATED;
    if (is_null(p, end)) return p + 4;
    if ((p = value_at(p, end, &number)) == NULL || number.too_long || number.fraction) return NULL;
    if (number.whole > LARGEST) return NULL;
    *value = number.negative ? -number.whole : number.whole;
    return p;
}

/* Thread blocks of a launch grid [x, y, z]. */
static const char *blocks_at(const char *p, const char *end, int64_t *blocks) {
    double product = 1;
    *blocks = NOT_STATED;
    if (is_null(p, end)) return p + 4;
    if (p >= end || *p++ != '[') return NULL;
    for (int side = 0; side < 3; side++) {
        int64_t length;
        p = after_blanks(p, end);
        if (p >= end || !is_digit(*p) || (p = integer_at(p, end, &length)) == NULL) return NULL;
        product *= (double)length;
        p = after_blanks(p, end);
        if (p >= end || *p++ != (side < 2 ? ',' : ']')) return NULL;
    }
    if (product < MOST_BLOCKS) *blocks = (int64_t)product;
    return p;
}

static const char *text_at(const char *p, const char *end, Texts *table, int64_t *number) {
    Span text;
    *number = NOT_STATED;
    if (is_null(p, end)) return p + 4;
    if ((p = string_at(p, end, &text)) == NULL) return NULL;
    return (*number = texts_number(table, text.at, text.size)) < 0 ? NULL : p;
}

/* JSON of any kind, as it stands. */
static const char *span_at(const char *p, const char *end, Span *span) {
    span->at = p;
    if ((p = skip_value(p, end, 0)) != NULL) span->size = (size_t)(p - span->at);
    return p;
}

static const char *json_at(const char *p, const char *end, Texts *table, int64_t *number) {
    Span json;
    if ((p = span_at(p, end, &json)) == NULL) return NULL;
    return (*number = texts_number(table, json.at, json.size)) < 0 ? NULL : p;
}

static const char *place_at(Scan *scan, const char *p, int64_t *at, int64_t *size) {
    Span json;
    if ((p = span_at(p, scan->end, &json)) == NULL) return NULL;
    *at = json.at - scan->start;
    *size = (int64_t)json.size;
    return p;
}

/* One of `args`. The lengths of keys come first: they tell most keys apart. */
static const char *arg_at(Scan *scan, Row *row, Span key, const char *p) {
    const char *end = scan->end;
    int64_t *event = row->event, *memory = row->memory;
    switch (key.size) {
    case 4:
        if (IS(key, "grid")) return blocks_at(p, end, &event[F_blocks]);
        break;
    case 5:
        if (IS(key, "bytes")) return integer_at(p, end, &event[F_bytes]);
        if (IS(key, "Bytes")) return integer_at(p, end, &memory[M_bytes]);
        break;
    case 6:
        if (IS(key, "stream")) return integer_at(p, end, &event[F_stream]);
        if (IS(key, "device")) return integer_at(p, end, &event[F_device]);
        break;
    case 9:
        if (IS(key, "Python id")) return integer_at(p, end, &event[F_python_id]);
        if (IS(key, "Device Id")) return integer_at(p, end, &memory[M_device]);
        break;
    case 10:
        if (IS(key, "Input Dims")) return json_at(p, end, &scan->tables[T_dims], &event[F_dims]);
        if (IS(key, "Input type")) return json_at(p, end, &scan->tables[T_dtypes], &event[F_dtypes]);
        if (IS(key, "Call stack")) return text_at(p, end, &scan->tables[T_stacks], &event[F_stack]);
        /* Of 2021; the other spelling holds where both are stated. */
        if (IS(key, "Input dims") && event[F_dims] < 0) return json_at(p, end, &scan->tables[T_dims], &event[F_dims]);
        break;
    case 11:
        if (IS(key, "External id")) return integer_at(p, end, &event[F_external]);
        if (IS(key, "external id")) return integer_at(p, end, &event[F_external_2021]);
        if (IS(key, "correlation")) return integer_at(p, end, &event[F_correlation]);
        if (IS(key, "Device Type")) return integer_at(p, end, &memory[M_device_type]);
        break;
    case 13:
        if (IS(key, "Fwd thread id")) return integer_at(p, end, &event[F_forward]);
        if (IS(key, "Input Strides")) return place_at(scan, p, &event[F_strides_at], &event[F_strides_size]);
        break;
    case 14:
        if (IS(key, "Total Reserved")) return integer_at(p, end, &memory[M_reserved]);
        row->is_rare |= IS(key, "wait_on_stream");
        break;
    case 15:
        if (IS(key, "Sequence number")) return integer_at(p, end, &event[F_sequence]);
        if (IS(key, "Concrete Inputs")) return place_at(scan, p, &event[F_values_at], &event[F_values_size]);
        if (IS(key, "Total Allocated")) return integer_at(p, end, &memory[M_allocated]);
        row->is_rare |= IS(key, "Collective name");
        break;
    case 16:
        if (IS(key, "Python parent id")) return integer_at(p, end, &event[F_python_parent]);
        break;
    case 33:
        row->is_rare |= IS(key, "wait_on_cuda_event_record_corr_id");
        break;
    }
    return skip_value(p, end, 0);
}

static const char *field_at(Scan *scan, Row *row, Span key, const char *p);

/* The members of a row or of its `args`, from behind the `{` to behind the `}`. */
static const char *members_at(Scan *scan, Row *row, int of_args, const char *p) {
    const char *end = scan->end;
    p = after_blanks(p, end);
    if (p < end && *p == '}') return p + 1;
    for (;;) {
        Span key;
        if ((p = string_at(p, end, &key)) == NULL || key.escaped) return NULL;
        p = after_blanks(p, end);
        if (p >= end || *p != ':') return NULL;
        p = after_blanks(p + 1, end);
        p = of_args ? arg_at(scan, row, key, p) : field_at(scan, row, key, p);
        if (p == NULL) return NULL;
        p = after_blanks(p, end);
        if (p >= end) return NULL;
        if (*p == '}') return p + 1;
        if (*p != ',') return NULL;
        p = after_blanks(p + 1, end);
    }
}

static const char *args_at(Scan *scan, Row *row, const char *p) {
    if (row->has_args++) return NULL; /* which of two would hold is not ours to say */
    if (is_null(p, scan->end)) return p + 4;
    return p < scan->end && *p == '{' ? members_at(scan, row, 1, p + 1) : NULL;
}

/* One field of a row. */
static const char *field_at(Scan *scan, Row *row, Span key, const char *p) {
    const char *end = scan->end;
    Span text;
    if (IS(key, "ts")) return time_at(p, end, &row->event[F_start]);
    if (IS(key, "dur")) return time_at(p, end, &row->event[F_dur]);
    if (IS(key, "pid")) return span_at(p, end, &row->pid);
    if (IS(key, "tid")) return span_at(p, end, &row->tid);
    if (IS(key, "cat")) return span_at(p, end, &row->category);
    if (IS(key, "name")) return string_at(p, end, &row->name);
    if (IS(key, "args")) return args_at(scan, row, p);
    if (!IS(key, "ph")) return skip_value(p, end, 0);
    if ((p = string_at(p, end, &text)) == NULL || text.size != 1 || row->phase) return NULL;
    row->phase = *text.at;
    return p;
}

/* The number of a row's category, pid and tid as they stand, one a line. */
static int64_t place_of(Scan *scan, const Row *row) {
    char line[LONGEST_PLACE], *to = line;
    const Span *parts[] = {&row->category, &row->pid, &row->tid};
    if (row->category.size + row->pid.size + row->tid.size + 3 > LONGEST_PLACE) return -1;
    for (int part = 0; part < 3; part++) {
        if (parts[part]->size) memcpy(to, parts[part]->at, parts[part]->size);
        to += parts[part]->size;
        *to++ = '\n';
    }
    return texts_number(&scan->tables[T_places], line, (size_t)(to - line));
}

static int put(Columns *columns, const int64_t *values, int fields) {
    if (columns->used == columns->rows) return 0;
    for (int field = 0; field < fields; field++) columns->room[field * columns->rows + columns->used] = values[field];
    columns->used++;
    return 1;
}

/* Keeps what is wanted of a row that was read; 0 where that cannot be done. */
static int keep(Scan *scan, Row *row, const char *at, const char *end) {
    int64_t whole[] = {at - scan->start, end - at};
    switch (row->phase) {
    case 'X':
        row->event[F_name] = texts_number(&scan->tables[T_names], row->name.at, row->name.size);
        row->event[F_place] = place_of(scan, row);
        if (row->event[F_name] < 0 || row->event[F_place] < 0) return 0;
        if (row->is_rare) {
            row->event[F_rare_at] = whole[0];
            row->event[F_rare_size] = whole[1];
        }
        return put(&scan->events, row->event, FIELDS);
    case 'i':
        row->memory[M_time] = row->event[F_start];
        return !IS(row->name, "[memory]") || put(&scan->memory, row->memory, MEMORY_FIELDS);
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
    if ((p = members_at(scan, &row, 0, p + 1)) == NULL || !keep(scan, &row, at, p)) return NULL;
    return p;
}

/* All rows of a JSON list: where it ends, NULL where it is refused. */
static const char *scan_rows(Scan *scan) {
    const char *p = after_blanks(scan->start, scan->end), *end = scan->end;
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

#endif
