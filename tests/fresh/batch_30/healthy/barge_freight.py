"""Estimate the freight rate of river barges from tables of voyages with embeddings and a gated MLP."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

CODES = {"origin": 60, "destination": 60, "cargo": 25, "hull": 8, "season": 4}
NUMBERS = 20


class Voyages:
    """Columns as tensors; batches are slices of a shuffled order."""

    def __init__(self, rows, seed):
        generator = torch.Generator().manual_seed(seed)
        self.numbers = torch.randn(rows, NUMBERS, generator=generator)
        columns = [torch.randint(levels, (rows,), generator=generator) for levels in CODES.values()]
        self.codes = torch.stack(columns, dim=1)
        world = torch.Generator().manual_seed(0)
        tables = [torch.randn(levels, generator=world) for levels in CODES.values()]
        effects = sum(table[column] for table, column in zip(tables, columns))
        level = self.numbers[:, 0] * self.numbers[:, 1] + self.numbers[:, 2].abs()
        self.rates = effects + level + 0.1 * torch.randn(rows, generator=generator)

    def __len__(self):
        return len(self.rates)

    def batches(self, batch_size, shuffle):
        order = torch.randperm(len(self)) if shuffle else torch.arange(len(self))
        for rows in order.split(batch_size):
            yield self.numbers[rows], self.codes[rows], self.rates[rows]


class GatedLayer(nn.Module):
    def __init__(self, width, expand):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, 2 * expand * width)
        self.outer = nn.Linear(expand * width, width)

    def forward(self, hidden):
        return hidden + self.outer(F.glu(self.inner(self.norm(hidden)), dim=-1))


class FreightModel(nn.Module):
    def __init__(self, width, embedding, depth, expand=2):
        super().__init__()
        levels = torch.tensor([0, *CODES.values()])
        self.register_buffer("offsets", levels.cumsum(0)[:-1])
        self.codes = nn.Embedding(int(levels.sum()), embedding)
        self.input = nn.Linear(NUMBERS + len(CODES) * embedding, width)
        self.layers = nn.Sequential(*(GatedLayer(width, expand) for _ in range(depth)))
        self.output = nn.Linear(width, 1)

    def forward(self, numbers, codes):
        embedded = self.codes(codes + self.offsets).flatten(1)
        return self.output(self.layers(self.input(torch.cat([numbers, embedded], dim=1)))).squeeze(1)


def train_epoch(model, optimizer, schedule, voyages, batch_size):
    losses = []
    for numbers, codes, rates in voyages.batches(batch_size, shuffle=True):
        loss = F.huber_loss(model(numbers, codes), rates)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
    return torch.stack(losses).mean().item()


@torch.inference_mode()
def mean_error(model, voyages):
    model.eval()
    errors = [(model(numbers, codes) - rates).abs() for numbers, codes, rates in voyages.batches(2048, shuffle=False)]
    model.train()
    return torch.cat(errors).mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()

    torch.manual_seed(61)
    train, valid = Voyages(args.rows, seed=61), Voyages(4096, seed=62)
    model = FreightModel(args.width, embedding=12, depth=args.depth)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    steps = args.epochs * -(-len(train) // args.batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=steps)
    for epoch in range(args.epochs):
        loss = train_epoch(model, optimizer, schedule, train, args.batch_size)
        print(f"epoch {epoch}: loss {loss:.4f}, error {mean_error(model, valid):.4f}")


if __name__ == "__main__":
    main()
