"""Retrieval with two towers, negatives from the same batch, and a correction for popular items."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Tower(nn.Module):
    def __init__(self, entries, dim=32, out=32):
        super().__init__()
        self.embedding = nn.Embedding(entries, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 128), nn.ReLU(), nn.Linear(128, out))

    def forward(self, ids):
        return F.normalize(self.mlp(self.embedding(ids)), dim=1)


def interactions(users, items, count):
    """Users like items of their own kind, and popular ones."""
    user = torch.randint(0, users, (count,))
    rank = (torch.rand(count).square() * (items // 8)).long()
    return user, rank * 8 + user % 8


def recall(query, candidate, users, wanted, items, k):
    with torch.inference_mode():
        catalogue = candidate(torch.arange(items))
        top = (query(users) @ catalogue.t()).topk(k, dim=1).indices
    return (top == wanted[:, None]).any(dim=1).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--users", type=int, default=2000)
    parser.add_argument("--items", type=int, default=1600)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--temperature", type=float, default=0.1)
    args = parser.parse_args()

    torch.manual_seed(2)
    user, item = interactions(args.users, args.items, 65536)
    popularity = torch.bincount(item, minlength=args.items).add(1).float()
    correction = (popularity / popularity.sum()).log()
    query, candidate = Tower(args.users), Tower(args.items)
    optimizer = torch.optim.Adam([*query.parameters(), *candidate.parameters()], lr=2e-3, fused=True)
    held_user, held_item = interactions(args.users, args.items, 2048)
    for epoch in range(args.epochs):
        total = torch.zeros(())
        batches = torch.randperm(len(user)).split(args.batch)
        for rows in batches:
            ids = item[rows]
            scores = query(user[rows]) @ candidate(ids).t() / args.temperature - correction[ids]
            loss = F.cross_entropy(scores, torch.arange(len(rows)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        found = recall(query, candidate, held_user, held_item, args.items, k=50)
        print(f"epoch {epoch}: loss {total.item() / len(batches):.4f} recall@50 {found:.3f}")


if __name__ == "__main__":
    main()
