#include "texts.h"

#include <stdlib.h>
#include <string.h>

/* Texts are copied into pieces of memory of at least this size. */
#define PIECE_BYTES ((size_t)1 << 16)

typedef struct Piece {
    struct Piece *before;
    size_t used, room;
    char bytes[];
} Piece;

/* A seed that nobody knows: a file cannot be made so that all its texts fall into one place. */
static uint64_t hash_of(uint64_t seed, const char *at, size_t size) {
    uint64_t hash = seed ^ (size * 0x9e3779b97f4a7c15u), word;
    for (; size >= 8; at += 8, size -= 8) {
        memcpy(&word, at, 8);
        hash = (hash ^ word) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    word = 0;
    memcpy(&word, at, size);
    hash = (hash ^ word ^ seed) * 0xc4ceb9fe1a85ec53u;
    return hash ^ (hash >> 29);
}

/* Room for twice as many; 0 where there is no memory. */
static int texts_grow(Texts *texts) {
    int32_t room = texts->room ? texts->room * 2 : 256;
    if (room > 1 << 28) return 0;
    Text *known = realloc(texts->known, (size_t)room * sizeof *known);
    if (known == NULL) return 0;
    texts->known = known;
    int32_t *slots = calloc((size_t)room * 2, sizeof *slots);
    if (slots == NULL) return 0;
    free(texts->slots);
    texts->slots = slots;
    texts->room = room;
    uint64_t mask = (uint64_t)room * 2 - 1;
    for (int32_t number = 0; number < texts->count; number++) {
        uint64_t slot = known[number].hash & mask;
        while (slots[slot]) slot = (slot + 1) & mask;
        slots[slot] = number + 1;
    }
    return 1;
}

/* A copy that stays; NULL where there is no memory. */
static const char *texts_keep(Texts *texts, const char *at, size_t size) {
    Piece *piece = texts->piece;
    if (piece == NULL || piece->room - piece->used < size) {
        size_t room = size > PIECE_BYTES ? size : PIECE_BYTES;
        if ((piece = malloc(sizeof *piece + room)) == NULL) return NULL;
        piece->before = texts->piece;
        piece->used = 0;
        piece->room = room;
        texts->piece = piece;
    }
    char *kept = piece->bytes + piece->used;
    memcpy(kept, at, size);
    piece->used += size;
    return kept;
}

int32_t texts_number(Texts *texts, const char *at, size_t size) {
    if (texts->count == texts->room && !texts_grow(texts)) return -1;
    uint64_t hash = hash_of(texts->seed, at, size), mask = (uint64_t)texts->room * 2 - 1, slot = hash & mask;
    for (; texts->slots[slot]; slot = (slot + 1) & mask) {
        const Text *text = &texts->known[texts->slots[slot] - 1];
        if (text->hash == hash && text->size == size && memcmp(text->at, at, size) == 0) return texts->slots[slot] - 1;
    }
    const char *kept = texts_keep(texts, at, size);
    if (kept == NULL) return -1;
    texts->known[texts->count] = (Text){hash, kept, size};
    texts->slots[slot] = ++texts->count;
    return texts->count - 1;
}

void texts_free(Texts *texts) {
    for (Piece *piece = texts->piece, *before; piece != NULL; piece = before) {
        before = piece->before;
        free(piece);
    }
    free(texts->known);
    free(texts->slots);
}
