#include "json.h"

/* Values nested deeper than this are no trace's. */
#define DEEPEST 64

const char *string_end(const char *p, const char *end, int *escaped) {
    *escaped = 0;
    for (;;) {
        p = after_text(p, end);
        if (p >= end || (unsigned char)*p < 0x20) return NULL;
        if (*p == '"') return p;
        *escaped = 1;
        if (end - p < 2) return NULL;
        if (p[1] == 'u') {
            if (end - p < 6 || !is_hex(p[2]) || !is_hex(p[3]) || !is_hex(p[4]) || !is_hex(p[5])) return NULL;
            p += 6;
        } else {
            if (p[1] == '\0' || strchr("\"\\/bfnrt", p[1]) == NULL) return NULL;
            p += 2;
        }
    }
}

/* A list or an object, from behind its bracket to behind the closing one. */
static const char *skip_members(const char *p, const char *end, char close, int depth) {
    if (depth > DEEPEST) return NULL;
    p = after_blanks(p, end);
    if (p < end && *p == close) return p + 1;
    for (;;) {
        if (close == '}') {
            Span key;
            if ((p = string_at(p, end, &key)) == NULL) return NULL;
            p = after_blanks(p, end);
            if (p >= end || *p != ':') return NULL;
            p = after_blanks(p + 1, end);
        }
        if ((p = skip_value(p, end, depth)) == NULL) return NULL;
        p = after_blanks(p, end);
        if (p >= end) return NULL;
        if (*p == close) return p + 1;
        if (*p != ',') return NULL;
        p = after_blanks(p + 1, end);
    }
}

const char *skip_value(const char *p, const char *end, int depth) {
    Span text;
    if (p >= end) return NULL;
    switch (*p) {
    case '"': return string_at(p, end, &text);
    case '[': return skip_members(p + 1, end, ']', depth + 1);
    case '{': return skip_members(p + 1, end, '}', depth + 1);
    case 't': return word_at(p, end, "true", 4);
    case 'f': return word_at(p, end, "false", 5);
    case 'n': return word_at(p, end, "null", 4);
    default: return skip_number(p, end);
    }
}
