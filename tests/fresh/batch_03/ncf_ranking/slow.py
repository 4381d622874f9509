"""Neural collaborative filtering with leave-one-out evaluation: hit rate and NDCG among 100 candidates."""

import argparse

import numpy as np
import torch
from torch import nn


class NeuMF(nn.Module):
    def __init__(self, users, items, factors=16):
        super().__init__()
        self.user_gmf, self.item_gmf = nn.Embedding(users, factors), nn.Embedding(items, factors)
        self.user_mlp, self.item_mlp = nn.Embedding(users, 2 * factors), nn.Embedding(items, 2 * factors)
        self.mlp = nn.Sequential(
            nn.Linear(4 * factors, 2 * factors), nn.ReLU(), nn.Linear(2 * factors, factors), nn.ReLU()
        )
        self.predict = nn.Linear(2 * factors, 1)
        for table in (self.user_gmf, self.item_gmf, self.user_mlp, self.item_mlp):
            nn.init.normal_(table.weight, std=0.01)

    def forward(self, user, item):
        gmf = self.user_gmf(user) * self.item_gmf(item)
        mlp = self.mlp(torch.cat([self.user_mlp(user), self.item_mlp(item)], dim=-1))
        return self.predict(torch.cat([gmf, mlp], dim=-1)).squeeze(-1)


class Interactions:
    """Implicit feedback; the last item of each user is kept for the test, next to 99 others."""

    def __init__(self, users, items, per_user, seed):
        rng = np.random.default_rng(seed)
        taste, kind = rng.integers(0, 20, users), rng.integers(0, 20, items)
        self.users, self.items, self.rng = users, items, rng
        likes = [rng.choice(np.flatnonzero(kind == t), per_user, replace=False) for t in taste]
        self.liked = np.stack(likes)
        self.pairs = np.stack([np.repeat(np.arange(users), per_user - 1), self.liked[:, :-1].ravel()], axis=1)
        candidates = np.concatenate([self.liked[:, -1:], rng.integers(0, items, (users, 99))], axis=1)
        self.candidates = torch.from_numpy(candidates)

    def epoch(self, negatives):
        """Users, items and labels with fresh negatives, shuffled."""
        users = np.tile(self.pairs[:, 0], 1 + negatives)
        drawn = self.rng.integers(0, self.items, negatives * len(self.pairs))
        items = np.concatenate([self.pairs[:, 1], drawn])
        labels = np.concatenate([np.ones(len(self.pairs), np.float32), np.zeros(len(drawn), np.float32)])
        order = self.rng.permutation(len(users))
        return (torch.from_numpy(part[order]) for part in (users, items, labels))


@torch.no_grad()
def evaluate(model, data, top_k):
    model.eval()
    hits, gains = [], []
    for user in range(data.users):
        items = data.candidates[user]
        scores = model(torch.full_like(items, user), items)
        rank = (scores > scores[0]).sum().item()
        hits.append(rank < top_k)
        gains.append(1 / np.log2(rank + 2) if rank < top_k else 0.0)
    model.train()
    return float(np.mean(hits)), float(np.mean(gains))


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch_size", type=int, default=2048)
    parser.add_argument("--num_ng", type=int, default=4)
    parser.add_argument("--top_k", type=int, default=10)
    return parser.parse_args()


def main():
    args = parse()
    torch.manual_seed(21)
    data = Interactions(users=2400, items=1600, per_user=12, seed=22)
    model = NeuMF(data.users, data.items)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(args.epochs):
        users, items, labels = data.epoch(args.num_ng)
        for batch in zip(*(part.split(args.batch_size) for part in (users, items, labels))):
            user, item, label = batch
            optimizer.zero_grad()
            loss = criterion(model(user, item), label)
            loss.backward()
            optimizer.step()
        hit, ndcg = evaluate(model, data, args.top_k)
        print(f"epoch {epoch}: loss {loss.item():.4f} HR {hit:.4f} NDCG {ndcg:.4f}")


if __name__ == "__main__":
    main()
