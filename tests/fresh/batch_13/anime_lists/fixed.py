"""Factorise lists of watched series: who would like what."""

import torch
from torch import nn
from torch.nn import functional as F


class Interactions:
    def __init__(self, users, items, size, seed):
        generator = torch.Generator().manual_seed(seed)
        self.users = torch.randint(0, users, (size,), generator=generator)
        popular = torch.rand(size, generator=generator) ** 3
        self.items = ((popular * items).long() + self.users % 17).clamp(max=items - 1)
        self.scores = torch.randint(1, 11, (size,), generator=generator).float()

    def batches(self, batch_size):
        for rows in torch.randperm(len(self.users)).split(batch_size):
            yield self.users[rows], self.items[rows], self.scores[rows]


class TwoTables(nn.Module):
    def __init__(self, users, items, width=32):
        super().__init__()
        self.users = nn.Embedding(users, width, sparse=True)
        self.items = nn.Embedding(items, width, sparse=True)
        nn.init.normal_(self.users.weight, std=0.05)
        nn.init.normal_(self.items.weight, std=0.05)
        self.mlp = nn.Sequential(nn.Linear(3 * width, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, users, items):
        u, i = self.users(users), self.items(items)
        return self.mlp(torch.cat([u, i, u * i], 1)).squeeze(1)


def main():
    torch.manual_seed(0)
    users, items = 120_000, 20_000
    data = Interactions(users, items, 380_000, seed=0)
    model = TwoTables(users, items)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    for epoch in range(1):
        total, count = 0.0, 0
        for user, item, score in data.batches(1024):
            loss = F.mse_loss(model(user, item), score / 10)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, count = total + loss.item(), count + 1
            if count % 100 == 0:
                print(f"epoch {epoch} batch {count}: mse {total / count:.4f}")


if __name__ == "__main__":
    main()
