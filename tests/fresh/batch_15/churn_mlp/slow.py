"""Churn of phone customers: numbers and categories in one table, embeddings and an MLP, early stopping on the loss."""

import argparse
import dataclasses
import tempfile
import time
from pathlib import Path

import torch
from torch import nn


@dataclasses.dataclass
class Table:
    numbers: torch.Tensor
    categories: torch.Tensor
    target: torch.Tensor

    def __len__(self):
        return len(self.target)

    def __getitem__(self, index):
        return self.numbers[index], self.categories[index], self.target[index]


def make_customers(count, numbers, sizes, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(count, numbers, generator=g)
    c = torch.stack([torch.randint(0, size, (count,), generator=g) for size in sizes], dim=1)
    effects = [torch.randn(size, generator=g) for size in sizes]
    logit = x[:, :8].sum(1) * 0.4 + x[:, 8] * x[:, 9] + sum(e[c[:, i]] for i, e in enumerate(effects)) * 0.5 - 1
    return Table(x, c, (torch.rand(count, generator=g) < logit.sigmoid()).float())


def split_table(table, share, seed=1):
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(seed))
    cut = int(share * len(table))
    mean, std = table.numbers[order[:cut]].mean(0), table.numbers[order[:cut]].std(0)
    table = dataclasses.replace(table, numbers=(table.numbers - mean) / std)
    return Table(*table[order[:cut]]), Table(*table[order[cut:]])


class ChurnNet(nn.Module):
    def __init__(self, numbers, sizes, hidden=(512, 512, 256), dropout=0.2):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, min(16, (size + 1) // 2)) for size in sizes)
        inside = numbers + sum(table.embedding_dim for table in self.tables)
        layers = []
        for width in hidden:
            layers += [nn.Linear(inside, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(dropout)]
            inside = width
        self.mlp = nn.Sequential(*layers, nn.Linear(inside, 1))

    def forward(self, numbers, categories):
        embedded = [table(categories[:, i]) for i, table in enumerate(self.tables)]
        return self.mlp(torch.cat([numbers, *embedded], dim=1)).squeeze(1)


def accuracy(logits, target):
    return ((logits > 0) == target.bool()).float().mean()


class Learner:
    def __init__(self, model, args):
        self.model, self.args = model, args
        self.loss = nn.BCEWithLogitsLoss()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.8)

    def train_epoch(self, table):
        self.model.train()
        losses, accuracies = [], []
        for index in torch.randperm(len(table)).split(self.args.batch_size):
            numbers, categories, target = table[index]
            logits = self.model(numbers, categories)
            loss = self.loss(logits, target)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.detach())
            accuracies.append(self.batch_accuracy(numbers, categories, target))
        self.scheduler.step()
        return torch.stack(losses).mean().item(), torch.stack(accuracies).mean().item()

    @torch.no_grad()
    def batch_accuracy(self, numbers, categories, target):
        self.model.eval()
        result = accuracy(self.model(numbers, categories), target)
        self.model.train()
        return result

    @torch.no_grad()
    def validate(self, table):
        self.model.eval()
        logits = torch.cat([self.model(*table[index][:2]) for index in torch.arange(len(table)).split(4096)])
        return self.loss(logits, table.target).item(), accuracy(logits, table.target).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--customers", type=int, default=48_000)
    parser.add_argument("--numbers", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--patience", type=int, default=3)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(0)

    sizes = (5, 12, 30, 48, 8, 100)
    train, valid = split_table(make_customers(args.customers, args.numbers, sizes), 0.85)
    model = ChurnNet(args.numbers, sizes)
    learner = Learner(model, args)
    best, waited = float("inf"), 0
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(args.epochs):
            start = time.perf_counter()
            loss, right = learner.train_epoch(train)
            val_loss, val_right = learner.validate(valid)
            spent = time.perf_counter() - start
            print(f"{epoch:3d} train {loss:.4f} {right:.3f} valid {val_loss:.4f} {val_right:.3f} {spent:.1f}s")
            if val_loss < best:
                best, waited = val_loss, 0
                torch.save(model.state_dict(), Path(folder) / "best.pt")
            else:
                waited += 1
            if waited >= args.patience:
                break
        model.load_state_dict(torch.load(Path(folder) / "best.pt"))
    print("best: loss {:.4f} accuracy {:.3f}".format(*learner.validate(valid)))


if __name__ == "__main__":
    main()
