"""Bayesian personalised ranking: users, the items they took, and items they did not, drawn anew for each batch."""

import random

import torch
from torch import nn

random.seed(11)
torch.manual_seed(11)
USERS, ITEMS, PAIRS = 3000, 2000, 120_000

taken_users = torch.randint(0, USERS, (PAIRS,))
taken_items = (torch.randn(PAIRS).abs() * 500).long() % ITEMS
history = {user: set() for user in range(USERS)}
for user, item in zip(taken_users.tolist(), taken_items.tolist()):
    history[user].add(item)
known = torch.zeros(USERS, ITEMS, dtype=torch.bool)
known[taken_users, taken_items] = True


def sample_negatives(users):
    negatives = []
    for user in users.tolist():
        item = random.randrange(ITEMS)
        while item in history[user]:
            item = random.randrange(ITEMS)
        negatives.append(item)
    return torch.tensor(negatives)


class TwoTowers(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, width), nn.Embedding(ITEMS, width)
        self.user_tower = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, width))
        self.item_tower = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, width))

    def forward(self, users, items):
        return (self.user_tower(self.users(users)) * self.item_tower(self.items(items))).sum(1)


def train(model, epochs=2, size=2048):
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for epoch in range(epochs):
        order, total = torch.randperm(PAIRS), 0.0
        for chosen in order.split(size):
            users = taken_users[chosen]
            liked = model(users, taken_items[chosen])
            other = model(users, sample_negatives(users))
            loss = -nn.functional.logsigmoid(liked - other).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total * size / PAIRS:.4f}")


train(TwoTowers())
