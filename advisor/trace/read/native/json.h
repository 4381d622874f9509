/* JSON text, token by token.

   Every function gets where it stands and where the text ends, and gives where it stands then: NULL for what is not JSON,
   or not as Kineto writes it. Nothing is read at or behind `end`. */

#ifndef ADVISOR_JSON_H
#define ADVISOR_JSON_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Several bytes at once: where the machine can; byte by byte it comes to the same. */
#if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define LOWEST_FIRST
#endif
#if defined(__GNUC__) && defined(__SSE2__)
#include <emmintrin.h>
#define SIXTEEN_AT_ONCE
#endif
/* Of functions that other parts of the extension call, and nobody else: such calls cost less. */
#if defined(__GNUC__)
#define HIDDEN __attribute__((visibility("hidden")))
#else
#define HIDDEN
#endif

/* As many fit into 64 bits. */
#define MOST_DIGITS 18

typedef struct {
    const char *at;
    size_t size;
    int escaped; /* of a string: holds a backslash */
} Span;

typedef struct {
    int64_t whole;
    int32_t thousandths;
    int negative;
    int fraction; /* has one */
    int too_long; /* more digits than fit, or an exponent */
} Number;

static inline const char *after_blanks(const char *p, const char *end) {
    while (p < end && (unsigned char)*p <= ' ' && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    return p;
}

/* Whether two texts of one size are equal: most are too short for a call of memcmp. */
static inline int same_bytes(const char *a, const char *b, size_t size) {
    uint64_t left, right;
    if (size < 8) return memcmp(a, b, size) == 0;
    for (; size > 8; a += 8, b += 8, size -= 8) {
        memcpy(&left, a, 8);
        memcpy(&right, b, 8);
        if (left != right) return 0;
    }
    a -= 8 - size;
    b -= 8 - size;
    memcpy(&left, a, 8);
    memcpy(&right, b, 8);
    return left == right;
}

static inline int is_digit(char c) { return (unsigned char)(c - '0') < 10; }

static inline int is_hex(char c) { return is_digit(c) || (unsigned char)((c | 32) - 'a') < 6; }

/* Eight bytes, each 0x80 that is a quote, a backslash or a control character; what stands behind the first is not sure. */
static inline uint64_t ends_of_text(uint64_t word) {
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    uint64_t quote = word ^ (ones * '"'), backslash = word ^ (ones * '\\');
    return (((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) | ((word - ones * 0x20) & ~word)) & high;
}

/* Past the plain characters of a string. */
static inline const char *after_text(const char *p, const char *end) {
#ifdef SIXTEEN_AT_ONCE
    const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\'), control = _mm_set1_epi8(0x1f);
    for (; end - p >= 16; p += 16) {
        __m128i text = _mm_loadu_si128((const __m128i *)p);
        __m128i ends = _mm_or_si128(_mm_cmpeq_epi8(text, quote), _mm_cmpeq_epi8(text, backslash));
        int found = _mm_movemask_epi8(_mm_or_si128(ends, _mm_cmpeq_epi8(_mm_min_epu8(text, control), text)));
        if (found) return p + __builtin_ctz((unsigned)found);
    }
#endif
    uint64_t word, found;
    for (; end - p >= 8; p += 8) {
        memcpy(&word, p, 8);
        if ((found = ends_of_text(word)) == 0) continue;
#ifdef LOWEST_FIRST
        return p + (__builtin_ctzll(found) >> 3);
#else
        break;
#endif
    }
    while (p < end && *p != '"' && *p != '\\' && (unsigned char)*p >= 0x20) p++;
    return p;
}

#ifdef SIXTEEN_AT_ONCE
/* Which of 48 bytes are equal. */
static inline uint64_t same_bits(const char *a, const char *b) {
    uint64_t bits = 0;
    for (int at = 0; at < 48; at += 16) {
        __m128i left = _mm_loadu_si128((const __m128i *)(a + at)), right = _mm_loadu_si128((const __m128i *)(b + at));
        bits |= (uint64_t)_mm_movemask_epi8(_mm_cmpeq_epi8(left, right)) << at;
    }
    return bits;
}
#endif

/* From behind the opening quote of a string to its closing quote. */
HIDDEN const char *string_end(const char *p, const char *end, int *escaped);

/* A string, from its opening quote; what lies between the quotes goes into `text`. */
static inline const char *string_at(const char *p, const char *end, Span *text) {
    if (p >= end || *p != '"') return NULL;
    const char *close = string_end(p + 1, end, &text->escaped);
    if (close == NULL) return NULL;
    text->at = p + 1;
    text->size = (size_t)(close - p - 1);
    return close + 1;
}

/* Past an exponent, if there is one. */
static inline const char *after_power(const char *p, const char *end) {
    if (p >= end || (*p | 32) != 'e') return p;
    p++;
    if (p < end && (*p == '+' || *p == '-')) p++;
    const char *first = p;
    while (p < end && is_digit(*p)) p++;
    return p == first ? NULL : p;
}

/* Eight digits as a number; -1 where one of them is none. The first must have the lowest byte of a word. */
static inline int64_t eight_digits(const char *p) {
    const uint64_t zeros = 0x3030303030303030u;
    uint64_t word;
    memcpy(&word, p, 8);
    word -= zeros;
    if ((word | (word + 0x7676767676767676u)) & 0x8080808080808080u) return -1; /* what is less than '0' has borrowed */
    word = word * 10 + (word >> 8); /* pairs, then fours, then all */
    return (int64_t)((((word & 0x000000ff000000ffu) * 0x000f424000000064u) +
                      (((word >> 16) & 0x000000ff000000ffu) * 0x0000271000000001u)) >> 32);
}

/* Past digits, which are added to `whole` as long as they fit. */
static inline const char *digits_at(const char *p, const char *end, int64_t *whole) {
    const char *first = p;
#ifdef LOWEST_FIRST
    for (int64_t eight; end - p >= 8 && p - first <= 8 && (eight = eight_digits(p)) >= 0; p += 8) {
        *whole = *whole * 100000000 + eight;
    }
#endif
    for (; p < end && is_digit(*p); p++) {
        if (p - first < MOST_DIGITS) *whole = *whole * 10 + (*p - '0');
    }
    return p;
}

static inline const char *number_at(const char *p, const char *end, Number *number) {
    number->negative = p < end && *p == '-';
    p += number->negative;
    const char *first = p;
    number->whole = number->thousandths = 0;
    p = digits_at(p, end, &number->whole);
    if (p == first || (*first == '0' && p - first > 1)) return NULL;
    number->too_long = p - first > MOST_DIGITS;
    number->fraction = p < end && *p == '.';
    if (number->fraction) {
        const char *point = p++;
        /* The first three at once, where there are: so Kineto writes them. */
        int three = end - p > 3 && is_digit(p[0]) && is_digit(p[1]) && is_digit(p[2]);
        if (three) number->thousandths = (p[0] - '0') * 100 + (p[1] - '0') * 10 + (p[2] - '0');
        p += three ? 3 : 0;
        for (int32_t worth = three ? 0 : 100; p < end && is_digit(*p); p++, worth /= 10) {
            number->thousandths += worth * (*p - '0');
            number->too_long |= worth == 0 && *p != '0';
        }
        if (p == point + 1) return NULL;
    }
    if (p < end && (*p | 32) == 'e') number->too_long = 1;
    return after_power(p, end);
}

static inline const char *skip_number(const char *p, const char *end) {
    p += p < end && *p == '-';
    const char *first = p;
    while (p < end && is_digit(*p)) p++;
    if (p == first || (*first == '0' && p - first > 1)) return NULL;
    if (p < end && *p == '.') {
        const char *point = p++;
        while (p < end && is_digit(*p)) p++;
        if (p == point + 1) return NULL;
    }
    return after_power(p, end);
}

static inline const char *word_at(const char *p, const char *end, const char *word, size_t size) {
    return (size_t)(end - p) >= size && memcmp(p, word, size) == 0 ? p + size : NULL;
}

static inline int is_null(const char *p, const char *end) { return word_at(p, end, "null", 4) != NULL; }

/* Any value. */
HIDDEN const char *skip_value(const char *p, const char *end, int depth);

#endif
