/* The distinct texts of a column, numbered in the order in which they were first seen. */

#ifndef ADVISOR_TEXTS_H
#define ADVISOR_TEXTS_H

#include <stdint.h>

#include "json.h"

/* Kinds of rows that are told apart, by what they are likely to hold. */
#define CONTEXTS 16

typedef struct {
    uint64_t hash;
    const char *at;
    size_t size;
} Text;

struct Piece;

typedef struct {
    Text *known;    /* by number */
    int32_t *slots; /* number + 1 by hash; 0 is free */
    int32_t count, told, room;
    int32_t last[CONTEXTS]; /* the one numbered last in rows of each kind: it often comes again */
    uint64_t seed;
    struct Piece *piece;
} Texts;

/* The number of a text; -1 where there is no memory. */
HIDDEN int32_t texts_number(Texts *texts, const char *at, size_t size);

HIDDEN void texts_free(Texts *texts);

/* The one numbered last in such rows; NULL before the first. */
static inline const Text *texts_last(const Texts *texts, unsigned context) {
    return texts->count ? &texts->known[texts->last[context]] : NULL;
}

/* As texts_number, where the last one is likely. */
static inline int32_t texts_again(Texts *texts, unsigned context, const char *at, size_t size) {
    const Text *last = texts_last(texts, context);
    if (last != NULL && last->size == size && same_bytes(last->at, at, size)) return texts->last[context];
    int32_t number = texts_number(texts, at, size);
    if (number >= 0) texts->last[context] = number;
    return number;
}

#endif
