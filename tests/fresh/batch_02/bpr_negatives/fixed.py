"""Matrix factorisation with Bayesian personalised ranking and adaptive negatives."""

import argparse
import logging
import pickle
import random
import tempfile

import numpy as np
import torch
from torch import nn


def interactions(users, items, per_user, seed):
    """user -> set of items, with hidden tastes; goes through a pickle as data sets do."""
    rng = np.random.default_rng(seed)
    taste, trait = rng.normal(size=(users, 8)), rng.normal(size=(items, 8))
    liked = np.argsort(-(taste @ trait.T + rng.gumbel(size=(users, items))), axis=1)[:, :per_user]
    with tempfile.TemporaryFile() as file:
        pickle.dump({u: set(map(int, row)) for u, row in enumerate(liked)}, file)
        file.seek(0)
        return pickle.load(file)


class FactorizationModel(nn.Module):
    def __init__(self, users, items, dim):
        super().__init__()
        self.users, self.items, self.bias = nn.Embedding(users, dim), nn.Embedding(items, dim), nn.Embedding(items, 1)
        self.mix = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))
        nn.init.zeros_(self.bias.weight)

    def forward(self, user, item):
        u = self.mix(self.users(user))
        return (u.unsqueeze(1) * self.items(item)).sum(-1) + self.bias(item).squeeze(-1)


class NegativeSampler:
    def __init__(self, liked, items, candidates, seed):
        self.liked, self.items, self.candidates = liked, items, candidates
        self.rng, self.np_rng = random.Random(seed), np.random.default_rng(seed)
        self.mask = np.zeros((len(liked), items), bool)
        for user, row in liked.items():
            self.mask[user, list(row)] = True

    def draw(self, users):
        rows = self.np_rng.integers(0, self.items, (len(users), self.candidates))
        users = np.asarray(users)[:, None]
        while (wrong := self.mask[users, rows]).any():
            rows[wrong] = self.np_rng.integers(0, self.items, int(wrong.sum()))
        return torch.from_numpy(rows)


def batches(liked, size, rng):
    pairs = [(user, item) for user, row in liked.items() for item in row]
    rng.shuffle(pairs)
    for i in range(0, len(pairs) - size + 1, size):
        users, items = zip(*pairs[i : i + size])
        yield list(users), torch.tensor(items)


def hit_rate(model, liked, users, k=20):
    with torch.no_grad():
        scores = model(torch.arange(users), torch.arange(model.items.num_embeddings).expand(users, -1))
        top = scores.topk(k).indices.tolist()
    return sum(len(liked[u].intersection(row)) for u, row in enumerate(top)) / (users * k)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--users", type=int, default=2000)
    parser.add_argument("--items", type=int, default=3000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--candidates", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(10)
    rng = random.Random(10)
    liked = interactions(args.users, args.items, 20, seed=10)
    model = FactorizationModel(args.users, args.items, args.dim)
    sampler = NegativeSampler(liked, args.items, args.candidates, seed=10)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-6)
    for epoch in range(args.epochs):
        losses = []
        for users, positive in batches(liked, args.batch, rng):
            negatives = sampler.draw(users)
            scores = model(torch.tensor(users), torch.cat([positive[:, None], negatives], 1))
            loss = nn.functional.softplus(scores[:, 1:].max(1).values - scores[:, 0]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        logging.info("Epoch %d: loss %.4f, hits at 20 %.4f", epoch, np.mean(losses), hit_rate(model, liked, 200))
    with tempfile.TemporaryFile() as file:
        torch.save(model.state_dict(), file)


if __name__ == "__main__":
    main()
