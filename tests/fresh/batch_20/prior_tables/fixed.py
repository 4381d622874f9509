"""Learns to classify whole tables in one forward pass: tables from a prior, attention both ways, accelerate."""

import argparse
from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader, IterableDataset
from transformers import get_cosine_schedule_with_warmup


class Table(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


class PriorTables(IterableDataset):
    """Batches of tables, each with labels that a random small network of its own gives to its rows."""

    def __init__(self, steps, tables, rows, columns, classes):
        self.steps, self.shape, self.classes = steps, (tables, rows, columns), classes

    def __len__(self):
        return self.steps

    def __iter__(self):
        g = torch.Generator().manual_seed(17)
        tables, _, columns = self.shape
        for _ in range(self.steps):
            x = torch.randn(self.shape, generator=g)
            hidden = torch.tanh(x @ torch.randn(tables, columns, 12, generator=g))
            scores = hidden @ torch.randn(tables, 12, self.classes, generator=g)
            yield Table(x, scores.argmax(-1))


class TransformerEncoderLayer(nn.Module):
    """Attention among the features of a row, then among the rows, of which the test rows see the training rows only."""

    def __init__(self, size, heads, hidden):
        super().__init__()
        self.between_features = nn.MultiheadAttention(size, heads, batch_first=True)
        self.between_rows = nn.MultiheadAttention(size, heads, batch_first=True)
        self.linear1, self.linear2 = nn.Linear(size, hidden), nn.Linear(hidden, size)
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(size), nn.LayerNorm(size), nn.LayerNorm(size)

    def attend(self, attention, query, context):
        return attention(query, context, context, need_weights=False)[0]

    def forward(self, src, train_rows):
        tables, rows, columns, size = src.shape
        src = src.reshape(tables * rows, columns, size)
        src = self.norm1(self.attend(self.between_features, src, src) + src)
        src = src.reshape(tables, rows, columns, size).transpose(1, 2).reshape(tables * columns, rows, size)
        src = self.norm2(self.attend(self.between_rows, src, src[:, :train_rows]) + src)
        src = src.reshape(tables, columns, rows, size).transpose(1, 2)
        return self.norm3(self.linear2(F.gelu(self.linear1(src))) + src)


class TableModel(nn.Module):
    def __init__(self, size, heads, hidden, layers, classes):
        super().__init__()
        self.feature = nn.Linear(1, size)
        self.target = nn.Embedding(classes + 1, size)
        self.blocks = nn.ModuleList(TransformerEncoderLayer(size, heads, hidden) for _ in range(layers))
        self.decoder = nn.Sequential(nn.Linear(size, hidden), nn.GELU(), nn.Linear(hidden, classes))
        self.unknown = classes

    def forward(self, x, y, train_rows):
        mean, std = x[:, :train_rows].mean(1, keepdim=True), x[:, :train_rows].std(1, keepdim=True)
        features = self.feature(((x - mean) / (std + 1e-6)).unsqueeze(-1))
        known = torch.cat([y[:, :train_rows], torch.full_like(y[:, train_rows:], self.unknown)], dim=1)
        src = torch.cat([features, self.target(known).unsqueeze(2)], dim=2)
        for block in self.blocks:
            src = block(src, train_rows)
        return self.decoder(src[:, train_rows:, -1])


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=3)
    parser.add_argument("--rows", type=int, default=192)
    parser.add_argument("--columns", type=int, default=5)
    parser.add_argument("--classes", type=int, default=4)
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=110)
    parser.add_argument("--lr", type=float, default=1e-3)
    return parser.parse_args()


def main():
    args = parse_args()
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(2)
    prior = PriorTables(args.steps, args.tables, args.rows, args.columns, args.classes)
    model = TableModel(args.size, 4, 2 * args.size, args.layers, args.classes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    schedule = get_cosine_schedule_with_warmup(optimizer, 10, args.steps)
    model, optimizer, loader, schedule = accelerator.prepare(
        model, optimizer, DataLoader(prior, batch_size=None), schedule
    )
    train_rows = args.rows * 3 // 4
    model.train()
    for step, (x, y) in enumerate(loader):
        logits = model(x, y, train_rows)
        loss = F.cross_entropy(logits.flatten(0, 1), y[:, train_rows:].flatten())
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 25 == 0:
            accelerator.print(f"step {step:4d} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
