/* The keys of rows, foreseen.

   A writer puts the same key behind the same key, row after row: what stood between two values there the last time is
   compared as a whole, instead of reading comma, blanks, key and colon each time. */

#ifndef ADVISOR_KEYS_H
#define ADVISOR_KEYS_H

#include "texts.h"

#define LONGEST_SEPARATOR 48
#define MOST_SEPARATORS 63
/* Numbers of what stands before the first value, and behind a value whose separator has no number. */
#define FIRST 0
#define UNNUMBERED (MOST_SEPARATORS + 1)

/* A key that is known; `how` and `field` are the reader's. */
typedef struct {
    const char *text;
    uint8_t size, how, field;
} Key;

/* What stands between two values. */
typedef struct {
    char text[LONGEST_SEPARATOR];
    uint64_t bits; /* one for each byte of it */
    uint8_t size, key;
} Separator;

/* Those of rows, or of their `args`. */
typedef struct {
    Separator seen[MOST_SEPARATORS + 1]; /* by number, from 1 on */
    int used;
    uint8_t next[CONTEXTS][UNNUMBERED + 1]; /* which came behind each the last time; 0 before that */
} Keys;

/* From behind a value, or behind the `{`, to the next value; `key` tells which it is. `number` is that of the separator
   before, and of this one then. */
HIDDEN const char *next_key(Keys *keys, const Key *known, unsigned context, const char *p, const char *end, int *number,
                            int *key);

/* Whether a separator stands at p. */
static inline int stands_at(const Separator *one, const char *p, const char *end) {
#ifdef SIXTEEN_AT_ONCE
    if (end - p >= LONGEST_SEPARATOR) return (same_bits(p, one->text) & one->bits) == one->bits;
#endif
    return (size_t)(end - p) >= one->size && memcmp(p, one->text, one->size) == 0;
}

/* The same where what is foreseen stands there; NULL where it does not. */
static inline const char *foreseen_key(const Keys *keys, unsigned context, const char *p, const char *end, int *number,
                                       int *key) {
    int expected = keys->next[context][*number];
    const Separator *one = &keys->seen[expected];
    if (expected == 0 || !stands_at(one, p, end)) return NULL;
    *number = expected;
    *key = one->key;
    return after_blanks(p + one->size, end);
}

#endif
