"""Character CNN for review sentiment, on a text file with one labelled review per line."""

import argparse
import itertools
import os
import random
import tempfile

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789 .,!?'-"
GOOD = "great lovely superb charming bright fresh warm delightful moving clever".split()
BAD = "awful dull broken tedious bland noisy cold clumsy tired shallow".split()
FILLER = "the film plot actor scene and with was it a story of music end camera we saw then".split()


def write_reviews(path, count, seed):
    rng = random.Random(seed)
    with open(path, "w") as f:
        for _ in range(count):
            label = rng.randrange(2)
            words = [rng.choice(FILLER if rng.random() < 0.8 else (GOOD if label else BAD)) for _ in range(40)]
            f.write(f"{label}\t{' '.join(words)}.\n")


class ReviewFile(Dataset):
    """Reviews stay on disk; item i is line i."""

    def __init__(self, path, length=256):
        self.path = path
        self.max_length = length
        self.index_of = {c: i + 1 for i, c in enumerate(ALPHABET)}
        with open(path, "rb") as f:
            self.offsets = [0, *itertools.accumulate(len(line) for line in f)]

    def __len__(self):
        return len(self.offsets) - 1

    def encode(self, text):
        ids = [self.index_of.get(c, 0) for c in text.lower()[: self.max_length]]
        return torch.tensor(ids + [0] * (self.max_length - len(ids)))

    def __getitem__(self, i):
        with open(self.path, "rb") as f:
            f.seek(self.offsets[i])
            line = f.readline()
        label, text = line.decode().rstrip("\n").split("\t")
        return self.encode(text), int(label)


class CharCNN(nn.Module):
    def __init__(self, width=64, classes=2):
        super().__init__()
        self.embed = nn.Embedding(len(ALPHABET) + 1, 16, padding_idx=0)
        self.features = nn.Sequential(
            nn.Conv1d(16, width, 7, padding=3),
            nn.ReLU(),
            nn.MaxPool1d(3),
            nn.Conv1d(width, width, 7, padding=3),
            nn.ReLU(),
            nn.MaxPool1d(3),
            nn.Conv1d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveMaxPool1d(1),
        )
        self.classifier = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(width, classes))

    def forward(self, x):
        return self.classifier(self.features(self.embed(x).transpose(1, 2)))


def train(args, path):
    dataset = ReviewFile(path)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = CharCNN()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        running, seen = torch.zeros(()), 0
        for text, label in loader:
            loss = F.cross_entropy(model(text), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.detach()
            seen += 1
        print(f"epoch {epoch}: loss {running.item() / seen:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--reviews", type=int, default=12000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    torch.manual_seed(5)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "reviews.tsv")
        write_reviews(path, args.reviews, seed=11)
        train(args, path)
