"""Predict how long a canoe is rented for, from the station, the weather and the customer."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

CARDINALITIES = (140, 12, 7, 24, 9, 31)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rentals", type=int, default=44_000)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--width", type=int, default=160)
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--seed", type=int, default=7)
    return parser.parse_args()


def make_rentals(count, seed):
    generator = torch.Generator().manual_seed(seed)
    categories = torch.stack([torch.randint(size, (count,), generator=generator) for size in CARDINALITIES], dim=1)
    numbers = torch.randn(count, 18, generator=generator)
    effect = torch.randn(CARDINALITIES[0], generator=generator)[categories[:, 0]]
    minutes = 60 + 12 * effect + 9 * numbers[:, 0] * numbers[:, 1] - 5 * numbers[:, 2].abs()
    minutes = minutes + 3 * torch.randn(count, generator=generator)
    return categories, numbers, (minutes - minutes.mean()) / minutes.std()


class ResidualBlock(nn.Module):
    def __init__(self, width, dropout=0.1):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.wide = nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        hidden = F.relu(self.wide(self.norm(x)))
        return x + self.narrow(self.dropout(hidden))


class RentalNet(nn.Module):
    def __init__(self, width, blocks, embedding=16):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(size, embedding) for size in CARDINALITIES)
        self.stem = nn.Linear(embedding * len(CARDINALITIES) + 18, width)
        self.blocks = nn.Sequential(*[ResidualBlock(width) for _ in range(blocks)])
        self.head = nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, categories, numbers):
        embedded = [table(column) for table, column in zip(self.embeddings, categories.unbind(1), strict=True)]
        x = self.stem(torch.cat([*embedded, numbers], dim=1))
        return self.head(self.blocks(x)).squeeze(1)


@torch.no_grad()
def evaluate(model, tensors):
    model.eval()
    categories, numbers, minutes = tensors
    error = F.l1_loss(model(categories, numbers), minutes).item()
    model.train()
    return error


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    categories, numbers, minutes = make_rentals(args.rentals, args.seed)
    held_out = args.rentals // 20
    valid = (categories[:held_out], numbers[:held_out], minutes[:held_out])
    train_set = TensorDataset(categories[held_out:], numbers[held_out:], minutes[held_out:])
    batches = BatchSampler(RandomSampler(train_set), args.batch_size, drop_last=True)
    loader = DataLoader(train_set, sampler=batches, batch_size=None)

    model = RentalNet(args.width, args.blocks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * len(loader))
    for epoch in range(args.epochs):
        running = torch.zeros(())
        for batch_categories, batch_numbers, batch_minutes in loader:
            prediction = model(batch_categories, batch_numbers)
            loss = F.huber_loss(prediction, batch_minutes)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            running += loss.detach()
        print(f"epoch {epoch}: huber {running.item() / len(loader):.4f}, MAE {evaluate(model, valid):.4f}")


if __name__ == "__main__":
    main()
