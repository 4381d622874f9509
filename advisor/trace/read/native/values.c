#include "values.h"

/* From here on a time is none (numbers.py says why), an integer is no longer exact where it was decoded as a float. */
#define LATEST_US ((INT64_C(1) << 61) / 1000)
#define LARGEST ((INT64_C(1) << 53) - 1)
/* Product of a launch grid that a float holds exactly. */
#define MOST_BLOCKS 9007199254740992.0

/* A number, or one that is written as text: some vendors do that. */
static const char *value_at(const char *p, const char *end, Number *number) {
    if (p >= end || *p != '"') return number_at(p, end, number);
    p = number_at(p + 1, end, number);
    return p != NULL && p < end && *p == '"' ? p + 1 : NULL;
}

const char *time_at(const char *p, const char *end, int64_t *ns) {
    Number number;
    *ns = ABSENT_TIME;
    if (is_null(p, end)) return p + 4;
    if ((p = value_at(p, end, &number)) == NULL || number.too_long || number.whole >= LATEST_US) return NULL;
    *ns = number.whole * 1000 + number.thousandths;
    if (number.negative) *ns = -*ns;
    return p;
}

const char *integer_at(const char *p, const char *end, int64_t *value) {
    Number number;
    *value = NOT_STATED;
    if (is_null(p, end)) return p + 4;
    if ((p = value_at(p, end, &number)) == NULL || number.too_long || number.fraction) return NULL;
    if (number.whole > LARGEST) return NULL;
    *value = number.negative ? -number.whole : number.whole;
    return p;
}

const char *blocks_at(const char *p, const char *end, int64_t *blocks) {
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

const char *text_at(const char *p, const char *end, Texts *table, unsigned context, int64_t *number) {
    Span text;
    *number = NOT_STATED;
    if (is_null(p, end)) return p + 4;
    if ((p = string_at(p, end, &text)) == NULL) return NULL;
    return (*number = texts_again(table, context, text.at, text.size)) < 0 ? NULL : p;
}

const char *span_at(const char *p, const char *end, Span *span) {
    span->at = p;
    if ((p = skip_value(p, end, 0)) != NULL) span->size = (size_t)(p - span->at);
    return p;
}
