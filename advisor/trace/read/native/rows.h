/* Rows of `traceEvents` as Kineto writes them, to columns of 64-bit integers.

   Whatever is written otherwise (exponents, fractions of a byte, other phases) refuses the whole slice: advisor.trace.schema
   knows those. What the fields mean is said there, too. */

#ifndef ADVISOR_ROWS_H
#define ADVISOR_ROWS_H

#include "keys.h"

/* Changes with the fields below: advisor.trace.read.native_columns does not use an extension that was built from other sources. */
#define LAYOUT 2

/* Fields of a complete event; those of texts hold numbers of a table, `_at` and `_size` a place in the slice. */
#define FOR_EACH_FIELD(X) \
    X(start) X(dur) X(name) X(place) X(external) X(external_2021) X(correlation) X(device) X(stream) X(bytes) \
    X(sequence) X(forward) X(python_id) X(python_parent) X(dims) X(dtypes) X(stack) X(blocks) \
    X(strides_at) X(strides_size) X(values_at) X(values_size) X(rare_at) X(rare_size)
#define FOR_EACH_MEMORY_FIELD(X) X(time) X(bytes) X(allocated) X(reserved) X(device_type) X(device) X(address)
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
    Keys keys_of_rows, keys_of_args;
    Span strides[CONTEXTS], values[CONTEXTS]; /* the last ones of this slice */
} Scan;

/* All rows of a JSON list: where it ends, NULL where it is refused. */
HIDDEN const char *scan_rows(Scan *scan);

#endif
