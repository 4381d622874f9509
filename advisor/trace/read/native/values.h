/* Values of known keys, to 64-bit integers.

   Every function gives where it stands behind the value: NULL for what is written in another way than Kineto's. */

#ifndef ADVISOR_VALUES_H
#define ADVISOR_VALUES_H

#include "texts.h"

#define ABSENT_TIME INT64_MIN
#define NOT_STATED (-1)

HIDDEN const char *time_at(const char *p, const char *end, int64_t *ns);
HIDDEN const char *integer_at(const char *p, const char *end, int64_t *value);
/* Thread blocks of a launch grid [x, y, z]. */
HIDDEN const char *blocks_at(const char *p, const char *end, int64_t *blocks);
/* The number of a string. */
HIDDEN const char *text_at(const char *p, const char *end, Texts *table, unsigned context, int64_t *number);
/* JSON of any kind, as it stands. */
HIDDEN const char *span_at(const char *p, const char *end, Span *span);

/* The number of a list. What is foreseen need not be looked through. */
static inline const char *list_at(const char *p, const char *end, Texts *table, unsigned context, int64_t *number) {
    const Text *last = texts_last(table, context);
    if (last != NULL && *last->at == '[' && (size_t)(end - p) >= last->size && same_bytes(p, last->at, last->size)) {
        *number = table->last[context];
        return p + last->size;
    }
    Span json;
    if ((p = span_at(p, end, &json)) == NULL) return NULL;
    return (*number = texts_again(table, context, json.at, json.size)) < 0 ? NULL : p;
}

#endif
