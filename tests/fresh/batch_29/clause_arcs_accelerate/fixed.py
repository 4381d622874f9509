"""Heads of words in clauses: every pair of words gets a score. Trained with accelerate."""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clauses", type=int, default=1600)
    parser.add_argument("--length", type=int, default=28)
    parser.add_argument("--vocabulary", type=int, default=1500)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--learning_rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=13)
    return parser.parse_args()


def treebank(args):
    """Clauses in which a word's class says how far its head is."""
    rng = np.random.default_rng(args.seed)
    words = rng.integers(1, args.vocabulary, size=(args.clauses, args.length))
    distance = words % 7 - 3
    heads = (np.arange(args.length) + distance).clip(0, args.length - 1)
    return TensorDataset(torch.from_numpy(words), torch.from_numpy(heads))


class WordEncoder(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width // 2, num_layers=2, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(0.1)

    def forward(self, words):
        return self.dropout(self.lstm(self.embed(words))[0])


class ArcScorer(nn.Module):
    """A layer over the concatenation of a word and a possible head."""

    def __init__(self, width, hidden):
        super().__init__()
        self.width = width
        self.pair = nn.Linear(2 * width, hidden)
        self.score = nn.Linear(hidden, 1)

    def forward(self, states):
        word = F.linear(states, self.pair.weight[:, : self.width], self.pair.bias)
        head = F.linear(states, self.pair.weight[:, self.width :])
        hidden = word.unsqueeze(2) + head.unsqueeze(1)
        return self.score(torch.tanh(hidden)).squeeze(-1)


class Parser(nn.Module):
    def __init__(self, vocabulary, width=128, hidden=64):
        super().__init__()
        self.encoder = WordEncoder(vocabulary, width)
        self.arcs = ArcScorer(width, hidden)

    def forward(self, words):
        return self.arcs(self.encoder(words))


def train_epoch(accelerator, model, optimizer, schedule, loader):
    model.train()
    losses, hits = [], []
    for words, heads in loader:
        with accelerator.accumulate(model):
            scores = model(words)
            loss = F.cross_entropy(scores.flatten(0, 1), heads.flatten())
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        losses.append(loss.detach())
        hits.append((scores.argmax(dim=-1) == heads).float().mean())
    return torch.stack(losses).mean().item(), torch.stack(hits).mean().item()


def main():
    args = parse()
    torch.manual_seed(args.seed)
    accelerator = Accelerator(cpu=True)
    loader = DataLoader(treebank(args), batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = Parser(args.vocabulary)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=args.epochs * len(loader))
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    for epoch in range(args.epochs):
        loss, score = train_epoch(accelerator, model, optimizer, schedule, loader)
        accelerator.print(f"epoch {epoch}: loss {loss:.4f}, attached {score:.3f}")


if __name__ == "__main__":
    main()
