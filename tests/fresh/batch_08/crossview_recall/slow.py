"""Street views find their aerial picture: two encoders, a symmetric contrastive loss, recall after each epoch."""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def places(count, seed):
    """Each place has hidden properties, which both views show in their own way."""
    g = torch.Generator().manual_seed(seed)
    hidden = torch.randn(count, 24, generator=g)
    mix = torch.Generator().manual_seed(42)
    street = torch.tanh(hidden @ torch.randn(24, 256, generator=mix) / 5)
    aerial = torch.tanh(hidden @ torch.randn(24, 256, generator=mix) / 5)
    noise = torch.randn(2, count, 256, generator=g)
    return street + noise[0], aerial + noise[1]


class Tower(nn.Module):
    def __init__(self, inputs=256, hidden=512, dim=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(inputs, hidden),
            nn.LayerNorm(hidden),
            nn.GELU(),
            nn.Linear(hidden, hidden),
            nn.LayerNorm(hidden),
            nn.GELU(),
            nn.Linear(hidden, dim),
        )

    def forward(self, x):
        return F.normalize(self.net(x), dim=1)


class CrossView(nn.Module):
    def __init__(self):
        super().__init__()
        self.street, self.aerial = Tower(), Tower()
        self.log_scale = nn.Parameter(torch.tensor(2.5))

    def forward(self, street, aerial):
        return self.street(street), self.aerial(aerial)


def contrastive(q, r, scale):
    logits = scale * q @ r.t()
    target = torch.arange(len(q))
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)) / 2


def accuracy(query, reference, topk=(1, 5, 10)):
    """Shares of the queries whose own reference is among the first so many."""
    results = np.zeros(len(topk))
    for i in range(len(query)):
        similarity = reference @ query[i]
        ranking = np.argsort(similarity)[::-1]
        place = np.where(ranking == i)[0][0]
        for j, k in enumerate(topk):
            results[j] += place < k
    return results / len(query)


def validate(model, street, aerial):
    model.eval()
    with torch.no_grad():
        query, reference = model(street, aerial)
    model.train()
    return accuracy(query.numpy(), reference.numpy())


def train_epoch(model, optimizer, street, aerial, batch_size):
    total = 0.0
    batches = torch.randperm(len(street)).split(batch_size)
    for index in batches:
        loss = contrastive(*model(street[index], aerial[index]), model.log_scale.exp())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(batches)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train", type=int, default=3840)
    parser.add_argument("--validation", type=int, default=2000)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--lr", type=float, default=5e-4)
    args = parser.parse_args()
    torch.manual_seed(0)
    street, aerial = places(args.train, seed=1)
    held_out = places(args.validation, seed=2)
    model = CrossView()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.03, fused=True)
    best = 0.0
    for epoch in range(args.epochs):
        loss = train_epoch(model, optimizer, street, aerial, args.batch_size)
        top1, top5, top10 = validate(model, *held_out)
        best = max(best, top1)
        print(f"epoch {epoch}: loss {loss:.4f} recall@1 {top1:.3f} @5 {top5:.3f} @10 {top10:.3f}")
    print(f"best recall@1 {best:.3f}")


if __name__ == "__main__":
    main()
