"""Guess the category of a crossword's answer from the words of its clue: a recurrent classifier."""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--clues", type=int, default=4800)
    p.add_argument("--vocab", type=int, default=5000)
    p.add_argument("--categories", type=int, default=24)
    p.add_argument("--words", type=int, default=20)
    p.add_argument("--dim", type=int, default=96)
    p.add_argument("--hidden", type=int, default=128)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--clip", type=float, default=1.0)
    return p.parse_args()


class ClueCorpus:
    """Clues as rows of word numbers; every category prefers words of its own."""

    def __init__(self, args, seed=31):
        rng = np.random.default_rng(seed)
        self.batch_size = args.batch_size
        frequency = 1.0 / (np.arange(args.vocab) + 20)
        common = rng.choice(args.vocab, (args.clues, args.words), p=frequency / frequency.sum())
        labels = rng.integers(0, args.categories, args.clues)
        favourites = rng.integers(0, args.vocab, (args.categories, 40))
        own = favourites[labels[:, None], rng.integers(0, 40, common.shape)]
        words = np.where(rng.random(common.shape) < 0.2, own, common)
        self.words, self.labels = torch.from_numpy(words), torch.from_numpy(labels)

    def split(self, share):
        cut = int(len(self.labels) * share)
        return (self.words[:cut], self.labels[:cut]), (self.words[cut:], self.labels[cut:])


class WordLayer(nn.Module):
    """A vector for each word of the vocabulary."""

    def __init__(self, vocab, dim):
        super().__init__()
        self.vocab = vocab
        self.weight = nn.Parameter(torch.randn(vocab, dim) * 0.1)

    def forward(self, words):
        return F.one_hot(words, self.vocab).float() @ self.weight


class ClueReader(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.words = WordLayer(args.vocab, args.dim)
        self.drop = nn.Dropout(0.2)
        self.gru = nn.GRU(args.dim, args.hidden, num_layers=2, batch_first=True, bidirectional=True)
        self.attend = nn.Linear(2 * args.hidden, 1)
        self.classify = nn.Linear(2 * args.hidden, args.categories)

    def forward(self, words):
        states, _ = self.gru(self.drop(self.words(words)))
        weights = torch.softmax(self.attend(states), dim=1)
        return self.classify((weights * states).sum(dim=1))


def train_epoch(model, optimizer, words, labels, args):
    model.train()
    losses = []
    for chosen in torch.randperm(len(labels)).split(args.batch_size):
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(words[chosen]), labels[chosen])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.no_grad()
def evaluate(model, words, labels):
    model.eval()
    hits = 0
    for part_words, part_labels in zip(words.split(128), labels.split(128)):
        hits += (model(part_words).argmax(dim=1) == part_labels).sum().item()
    return hits / len(labels)


def main():
    args = get_args()
    torch.manual_seed(31)
    (words, labels), held_out = ClueCorpus(args).split(0.9)
    model = ClueReader(args)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        loss = train_epoch(model, optimizer, words, labels, args)
        print(f"epoch {epoch} | loss {loss:.4f} | accuracy {evaluate(model, *held_out):.3f}")


if __name__ == "__main__":
    main()
