"""Predicts whether a customer comes back from the purchases in a database."""

import argparse
import random
import sqlite3
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

PURCHASES = 20


def fill(path, customers):
    """Twenty purchases for each customer: (customer, position, article, price, days ago)."""
    rng = random.Random(0)
    rows = [
        (customer, n, rng.randrange(500), rng.lognormvariate(2, 1), rng.expovariate(0.02))
        for customer in range(customers)
        for n in range(PURCHASES)
    ]
    with sqlite3.connect(path) as base:
        base.execute("create table purchases (customer int, position int, article int, price real, days real)")
        base.executemany("insert into purchases values (?, ?, ?, ?, ?)", rows)
        base.execute("create index by_customer on purchases (customer)")


class Customers(Dataset):
    def __init__(self, path, count):
        self.path, self.count = path, count
        self.base = sqlite3.connect(self.path)

    def __len__(self):
        return self.count

    def __getitem__(self, customer):
        cursor = self.base.execute(
            "select article, price, days from purchases where customer = ? order by position", (customer,)
        )
        articles, prices, days = zip(*cursor)
        back = float(min(days) < 4)
        return torch.tensor(articles), torch.tensor([prices, days]).log1p().T, torch.tensor(back)


class Returns(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.article = nn.Embedding(500, width - 2)
        self.gru = nn.GRU(width, 2 * width, batch_first=True)
        self.out = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, articles, numbers):
        _, last = self.gru(torch.cat([self.article(articles), numbers], 2))
        return self.out(last[0]).squeeze(1)


def train(args):
    torch.manual_seed(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shop.db"
        fill(path, args.customers)
        loader = DataLoader(Customers(path, args.customers), args.batch_size, shuffle=True, drop_last=True)
        model = Returns(args.width)
        optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
        for epoch in range(args.epochs):
            losses = []
            for articles, numbers, back in loader:
                loss = F.binary_cross_entropy_with_logits(model(articles, numbers), back)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
            print(f"epoch {epoch}: {torch.stack(losses).mean().item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--customers", type=int, default=1600)
    parser.add_argument("--width", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    train(parser.parse_args())
