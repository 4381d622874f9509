"""Masked language model with a home-made word-piece tokenizer."""

import random
import re
import string
import tempfile

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class WordPieceTokenizer:
    def __init__(self, texts, size=600):
        counts = {}
        for text in texts:
            for word in self.words(text):
                for width in (1, 2, 3):
                    for i in range(len(word) - width + 1):
                        piece = word[i : i + width]
                        counts[piece] = counts.get(piece, 0) + 1
        pieces = sorted(counts, key=lambda p: (-counts[p] * len(p), p))[:size]
        self.vocab = {p: i + 3 for i, p in enumerate(sorted(set(pieces) | set(string.ascii_lowercase)))}
        self.pad, self.mask, self.unk = 0, 1, 2

    def __len__(self):
        return len(self.vocab) + 3

    @staticmethod
    def words(text):
        return re.findall(r"[a-z]+|[0-9]+|[^\sa-z0-9]", text.lower())

    def encode(self, text, length):
        ids = []
        for word in self.words(text):
            while word:
                for width in range(min(3, len(word)), 0, -1):
                    if word[:width] in self.vocab:
                        ids.append(self.vocab[word[:width]])
                        break
                else:
                    ids.append(self.unk)
                    width = 1
                word = word[width:]
        return (ids + [self.pad] * length)[:length]


def write_texts(count, rng):
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(2000)]
    return [" ".join(rng.choices(words, k=rng.randint(600, 800))).capitalize() + "." for _ in range(count)]


class TextDataset(Dataset):
    def __init__(self, texts, tokenizer, length):
        self.tokenizer, self.length = tokenizer, length
        self.encoded = [torch.tensor(tokenizer.encode(text, length)) for text in texts]

    def __len__(self):
        return len(self.encoded)

    def __getitem__(self, i):
        return self.encoded[i]


class Encoder(nn.Module):
    def __init__(self, vocab, length, dim=64, depth=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, dim), nn.Parameter(torch.randn(length, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, 4, 2 * dim, 0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.out = nn.Linear(dim, vocab)

    def forward(self, x):
        return self.out(self.layers(self.tok(x) + self.pos))


class PretrainingTrainer:
    def __init__(self, dataset, model, tokenizer, batch=8, lr=1e-3):
        self.loader = DataLoader(dataset, batch, shuffle=True, drop_last=True)
        self.model, self.tokenizer = model, tokenizer
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.criterion = nn.CrossEntropyLoss(ignore_index=-100)

    def mask_tokens(self, inputs, probability=0.15):
        labels = inputs.clone()
        masked = (torch.rand(inputs.shape) < probability) & (inputs != self.tokenizer.pad)
        labels[~masked] = -100
        return inputs.masked_fill(masked, self.tokenizer.mask), labels

    def train(self, epochs, log_steps=40):
        step, total = 0, 0.0
        for epoch in range(epochs):
            for batch in self.loader:
                inputs, labels = self.mask_tokens(batch)
                loss = self.criterion(self.model(inputs).flatten(0, 1), labels.flatten())
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                total += loss.item()
                step += 1
                if step % log_steps == 0:
                    print(f"epoch {epoch} step {step} loss {total / log_steps:.4f}")
                    total = 0.0


if __name__ == "__main__":
    rng = random.Random(0)
    torch.manual_seed(0)
    texts = write_texts(520, rng)
    tokenizer = WordPieceTokenizer(texts[:30])
    length = 64
    trainer = PretrainingTrainer(TextDataset(texts, tokenizer, length), Encoder(len(tokenizer), length), tokenizer)
    trainer.train(epochs=3)
    with tempfile.TemporaryFile() as file:
        torch.save(trainer.model.state_dict(), file)
