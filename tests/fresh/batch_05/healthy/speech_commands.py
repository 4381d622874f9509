"""Spoken words from raw waves with one-dimensional convolutions; the waves stay in memory as 16-bit numbers."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


def make_waves(count, classes, length, seed):
    """Two chirps in an order and pitch of the class's own."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (count,), generator=generator)
    time = torch.arange(length) / 4000
    start = 150 + 60 * labels[:, None].float() * (1 + 0.02 * torch.randn(count, 1, generator=generator))
    sweep = torch.where(labels[:, None] % 2 == 0, 400.0, -300.0)
    waves = torch.sin(2 * torch.pi * (start + sweep * time) * time)
    waves = waves + 0.5 * torch.randn(count, length, generator=generator)
    return (waves / waves.abs().amax(dim=1, keepdim=True) * 32000).short(), labels


class M5(nn.Module):
    def __init__(self, classes, channels=32):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(1, channels, 64, stride=8, bias=False),
            nn.BatchNorm1d(channels),
            nn.ReLU(inplace=True),
            nn.MaxPool1d(4),
            nn.Conv1d(channels, channels, 3, bias=False),
            nn.BatchNorm1d(channels),
            nn.ReLU(inplace=True),
            nn.MaxPool1d(2),
            nn.Conv1d(channels, 2 * channels, 3, bias=False),
            nn.BatchNorm1d(2 * channels),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
            nn.Linear(2 * channels, classes),
        )

    def forward(self, waves):
        return self.layers(waves[:, None])


def train_epoch(model, optimizer, scheduler, waves, labels, batch_size):
    model.train()
    total, steps = torch.zeros(()), len(labels) // batch_size
    for rows in torch.randperm(len(labels))[: steps * batch_size].view(steps, batch_size):
        batch = waves[rows].float().mul_(1 / 32768)
        loss = F.cross_entropy(model(batch), labels[rows])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.detach()
    return total.item() / steps


@torch.inference_mode()
def accuracy(model, waves, labels):
    model.eval()
    right = [(model(w.float() / 32768).argmax(dim=1) == y).sum() for w, y in zip(waves.split(256), labels.split(256))]
    return torch.stack(right).sum().item() / len(labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clips", type=int, default=3000)
    parser.add_argument("--classes", type=int, default=12)
    parser.add_argument("--length", type=int, default=4000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()

    torch.manual_seed(5)
    waves, labels = make_waves(args.clips, args.classes, args.length, seed=6)
    held = args.clips // 10
    model = M5(args.classes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4, fused=True)
    steps = (args.clips - held) // args.batch_size * args.epochs
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=steps)
    for epoch in range(args.epochs):
        loss = train_epoch(model, optimizer, scheduler, waves[held:], labels[held:], args.batch_size)
        if epoch % 3 == 2:
            print(f"epoch {epoch}: loss {loss:.4f} accuracy {accuracy(model, waves[:held], labels[:held]):.3f}")


if __name__ == "__main__":
    main()
