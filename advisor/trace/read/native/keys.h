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

/* The index of a key among those that are known; the last of them, which has no text, stands for all others. */
static int key_of(const Key *known, Span text) {
    int key = 0;
    for (; known[key].text != NULL; key++) {
        if (known[key].size == text.size && memcmp(known[key].text, text.at, text.size) == 0) break;
    }
    return key;
}

/* The number of a separator; UNNUMBERED for one that is too long, or too many. */
static int separator_number(Keys *keys, const char *at, size_t size, int key) {
    if (size > LONGEST_SEPARATOR) return UNNUMBERED;
    for (int number = 1; number <= keys->used; number++) {
        const Separator *one = &keys->seen[number];
        if (one->size == size && memcmp(one->text, at, size) == 0) return number;
    }
    if (keys->used == MOST_SEPARATORS) return UNNUMBERED;
    Separator *fresh = &keys->seen[++keys->used];
    memcpy(fresh->text, at, size);
    fresh->bits = (UINT64_C(1) << size) - 1;
    fresh->size = (uint8_t)size;
    fresh->key = (uint8_t)key;
    return keys->used;
}

/* From behind a value, or behind the `{`, to the next value; `key` tells which it is. `number` is that of the separator
   before, and of this one then. */
static const char *next_key(Keys *keys, const Key *known, unsigned context, const char *p, const char *end, int *number,
                            int *key) {
    const char *start = p;
    Span text;
    int before = *number;
    p = after_blanks(p, end);
    if (before != FIRST) {
        if (p >= end || *p != ',') return NULL;
        p = after_blanks(p + 1, end);
    }
    if ((p = string_at(p, end, &text)) == NULL || text.escaped) return NULL;
    p = after_blanks(p, end);
    if (p >= end || *p != ':') return NULL;
    p = after_blanks(p + 1, end);
    *key = key_of(known, text);
    *number = separator_number(keys, start, (size_t)(p - start), *key);
    if (*number != UNNUMBERED) keys->next[context][before] = (uint8_t)*number;
    return p;
}

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
