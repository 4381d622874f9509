"""A byte-pair tokenizer in plain Python, and dialogues made of syllables."""

import random


class Tokenizer:
    """Merges pairs of symbols in the order in which they were learned."""

    def __init__(self, texts, merges):
        self.ranks = {}
        words = [list(word) for text in texts for word in text.split()]
        for rank in range(merges):
            counts = {}
            for word in words:
                for pair in zip(word, word[1:], strict=False):
                    counts[pair] = counts.get(pair, 0) + 1
            best = max(counts, key=counts.get)
            self.ranks[best] = rank
            words = [self.merge(word, best) for word in words]
        symbols = {s for word in words for s in word} | {c for text in texts for c in text}
        self.ids = {symbol: i + 1 for i, symbol in enumerate(sorted(symbols))}

    @staticmethod
    def merge(word, pair):
        out, i = [], 0
        while i < len(word):
            if i + 1 < len(word) and (word[i], word[i + 1]) == pair:
                out.append(word[i] + word[i + 1])
                i += 2
            else:
                out.append(word[i])
                i += 1
        return out

    def encode(self, text):
        """The ids of a text."""
        ids = []
        for part in text.split():
            word = list(part)
            while len(word) > 1:
                ranked = [(self.ranks.get(pair, 1 << 30), pair) for pair in zip(word, word[1:], strict=False)]
                rank, pair = min(ranked)
                if rank == 1 << 30:
                    break
                word = self.merge(word, pair)
            ids += [self.ids.get(symbol, 0) for symbol in word]
        return ids


def make_dialogues(count, seed):
    """Pairs of question and answer."""
    rng = random.Random(seed)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(800)]
    return [
        (" ".join(rng.choices(words, k=rng.randint(8, 16))), " ".join(rng.choices(words, k=rng.randint(10, 24))))
        for _ in range(count)
    ]
