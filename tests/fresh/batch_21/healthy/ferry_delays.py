"""Delays of ferries from weather, load and route: a residual network on a table that lies in memory as tensors."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler


class Crossings(Dataset):
    """Numbers and codes of crossings; indexed by a whole batch of places."""

    cardinalities = (40, 7, 24, 18)

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.numbers = torch.randn(count, 12, generator=generator)
        self.codes = torch.stack([torch.randint(0, n, (count,), generator=generator) for n in self.cardinalities], 1)
        wind, load = self.numbers[:, 0], self.numbers[:, 1]
        base = wind.clamp(min=0).square() + 0.4 * load * (self.codes[:, 1] > 4) + 0.05 * self.codes[:, 0]
        self.delay = base + 0.2 * torch.randn(count, generator=generator)

    def __len__(self):
        return len(self.delay)

    def __getitem__(self, places):
        return self.numbers[places], self.codes[places], self.delay[places]


class ResidualBlock(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.layers = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 2 * width),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(2 * width, width),
        )

    def forward(self, x):
        return x + self.layers(x)


class DelayNet(nn.Module):
    """One table holds the rows of all codes, shifted by an offset for each column."""

    def __init__(self, cardinalities, numbers, width=192, dim=16, blocks=3):
        super().__init__()
        sizes = torch.tensor(cardinalities)
        self.register_buffer("offsets", sizes.cumsum(0) - sizes)
        self.table = nn.Embedding(int(sizes.sum()), dim)
        self.enter = nn.Linear(numbers + dim * len(cardinalities), width)
        self.blocks = nn.Sequential(*[ResidualBlock(width, 0.1) for _ in range(blocks)])
        self.leave = nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, numbers, codes):
        embedded = self.table(codes + self.offsets).flatten(1)
        return self.leave(self.blocks(self.enter(torch.cat([numbers, embedded], 1)))).squeeze(1)


def make_loader(data, batch_size, training):
    order = RandomSampler(data) if training else SequentialSampler(data)
    return DataLoader(data, sampler=BatchSampler(order, batch_size, drop_last=training), batch_size=None)


@torch.inference_mode()
def validate(model, loader):
    model.eval()
    error = sum(F.l1_loss(model(numbers, codes), delay, reduction="sum") for numbers, codes, delay in loader)
    return error.item() / len(loader.dataset)


def train(args):
    torch.manual_seed(args.seed)
    train_loader = make_loader(Crossings(args.crossings, args.seed), args.batch_size, training=True)
    valid_loader = make_loader(Crossings(8000, args.seed + 1), 4000, training=False)
    model = DelayNet(Crossings.cardinalities, 12)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, args.epochs * len(train_loader))
    for epoch in range(args.epochs):
        model.train()
        total = torch.zeros(())
        for numbers, codes, delay in train_loader:
            loss = F.smooth_l1_loss(model(numbers, codes), delay)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.detach()
        print(f"epoch {epoch}  loss {total.item() / len(train_loader):.4f}  error {validate(model, valid_loader):.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--crossings", type=int, default=120000)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=2)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
