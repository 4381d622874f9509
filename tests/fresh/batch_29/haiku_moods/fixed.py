"""Moods of short poems: a small encoder of words, averaged over each poem."""

import argparse
import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence

MOODS = ("spring", "longing", "snow", "laughter", "dusk", "travel")


def make_poems(count, words, seed):
    rng = random.Random(seed)
    favourites = {mood: [rng.randrange(1, words) for _ in range(80)] for mood in range(len(MOODS))}
    poems = []
    for _ in range(count):
        mood = rng.randrange(len(MOODS))
        length = rng.randint(8, 26)
        tokens = [
            rng.choice(favourites[mood]) if rng.random() < 0.35 else rng.randrange(1, words) for _ in range(length)
        ]
        poems.append((torch.tensor(tokens), mood))
    return poems


def make_batches(poems, size):
    """Padded batches that are put together once."""
    result = []
    for start in range(0, len(poems) - size + 1, size):
        part = poems[start : start + size]
        lengths = torch.tensor([len(tokens) for tokens, _ in part])
        words = pad_sequence([tokens for tokens, _ in part], batch_first=True)
        result.append((words, lengths, torch.tensor([mood for _, mood in part])))
    return result


class ConvEncoder(nn.Module):
    def __init__(self, words, width, layers):
        super().__init__()
        self.embed = nn.Embedding(words, width, padding_idx=0)
        self.convs = nn.ModuleList([nn.Conv1d(width, width, 3, padding=1) for _ in range(layers)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(layers)])

    def forward(self, words):
        hidden = self.embed(words)
        for conv, norm in zip(self.convs, self.norms):
            hidden = norm(hidden + F.relu(conv(hidden.transpose(1, 2)).transpose(1, 2)))
        return hidden


class MeanPool(nn.Module):
    def forward(self, hidden, lengths):
        mask = (torch.arange(hidden.shape[1]) < lengths[:, None]).unsqueeze(2)
        return (hidden * mask).sum(dim=1) / lengths[:, None]


class MoodClassifier(nn.Module):
    def __init__(self, words, width=128, layers=3, moods=6):
        super().__init__()
        self.encoder = ConvEncoder(words, width, layers)
        self.pool = MeanPool()
        self.head = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, moods))

    def forward(self, words, lengths):
        return self.head(self.pool(self.encoder(words), lengths))


def evaluate(model, batches):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for words, lengths, moods in batches:
            right += (model(words, lengths).argmax(dim=1) == moods).sum().item()
            total += len(moods)
    model.train()
    return right / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--poems", type=int, default=3200)
    parser.add_argument("--words", type=int, default=2000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=17)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    poems = make_poems(args.poems + 256, args.words, args.seed)
    training = make_batches(poems[: args.poems], args.batch_size)
    held_out = make_batches(poems[args.poems :], args.batch_size)
    model = MoodClassifier(args.words)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        random.Random(epoch).shuffle(training)
        for words, lengths, moods in training:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(words, lengths), moods)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}, held out {evaluate(model, held_out):.3f}")


if __name__ == "__main__":
    main()
