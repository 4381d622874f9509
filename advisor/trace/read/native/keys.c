#include "keys.h"

#include <string.h>

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

const char *next_key(Keys *keys, const Key *known, unsigned context, const char *p, const char *end, int *number,
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
