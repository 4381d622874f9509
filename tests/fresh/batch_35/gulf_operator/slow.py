"""Neural operator for the temperature of a gulf: attention without softmax over all points of a grid."""

import argparse
import math
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_fields(count: int, side: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Surface temperature before and after it was carried by an eddy and smoothed."""
    generator = torch.Generator().manual_seed(seed)
    waves = torch.arange(1, 5)
    axis = torch.linspace(0, 2 * math.pi, side + 1)[:-1]
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    amplitude = torch.randn(count, 4, 4, 2, generator=generator) / (waves.view(-1, 1, 1) + waves.view(1, -1, 1))

    def field(x: torch.Tensor, y: torch.Tensor, fade: float) -> torch.Tensor:
        total = torch.zeros(count, side, side)
        for i, k in enumerate(waves.tolist()):
            for j, m in enumerate(waves.tolist()):
                damping = math.exp(-fade * (k * k + m * m))
                phase = k * x + m * y
                first, second = amplitude[:, i, j, 0].view(-1, 1, 1), amplitude[:, i, j, 1].view(-1, 1, 1)
                total += damping * (first * torch.sin(phase) + second * torch.cos(phase))
        return total

    turn = torch.rand(count, 1, 1, generator=generator)
    before = field(x, y, 0.0)
    after = field(x + turn * torch.sin(y), y + turn * torch.sin(x), 0.03)
    return torch.stack([before, turn.expand_as(before)], dim=-1).flatten(1, 2), after.flatten(1)


def positions(side: int) -> torch.Tensor:
    axis = torch.linspace(0, 2 * math.pi, side + 1)[:-1]
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    return torch.stack([x.sin(), x.cos(), y.sin(), y.cos()], dim=-1).flatten(0, 1)


class GalerkinAttention(nn.Module):
    """Keys and values are normalised for each head, then all is linear."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width, bias=False)
        self.key_norm = nn.LayerNorm(width // heads)
        self.value_norm = nn.LayerNorm(width // heads)
        self.merge = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, points, width = x.shape
        queries, keys, values = self.project(x).view(batch, points, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        keys, values = self.key_norm(keys), self.value_norm(values)
        mixed = (queries @ keys.transpose(-2, -1)) @ values / points
        return self.merge(mixed.transpose(1, 2).reshape(batch, points, width))


class OperatorBlock(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.attention = GalerkinAttention(width, heads)
        self.feed_forward = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x)
        return x + self.feed_forward(x)


class GulfOperator(nn.Module):
    def __init__(self, side: int, width: int, heads: int, depth: int):
        super().__init__()
        self.register_buffer("where", positions(side))
        self.lift = nn.Linear(2 + self.where.shape[-1], width)
        self.blocks = nn.Sequential(*(OperatorBlock(width, heads) for _ in range(depth)))
        self.lower = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(self, fields: torch.Tensor) -> torch.Tensor:
        where = self.where.expand(len(fields), -1, -1)
        x = self.blocks(self.lift(torch.cat([fields, where], dim=-1)))
        return fields[..., 0] + self.lower(x).squeeze(-1)


def relative_error(predicted: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    return ((predicted - truth).norm(dim=1) / truth.norm(dim=1)).mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fields", type=int, default=320)
    parser.add_argument("--side", type=int, default=22)
    parser.add_argument("--width", type=int, default=48)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1513)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    inputs, targets = make_fields(args.fields, args.side, args.seed)
    border = int(0.85 * args.fields)
    train_loader = DataLoader(
        TensorDataset(inputs[:border], targets[:border]), batch_size=args.batch_size, shuffle=True, drop_last=True
    )
    test_inputs, test_targets = inputs[border:], targets[border:]
    model = GulfOperator(args.side, args.width, args.heads, args.depth)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2 * args.lr, total_steps=args.epochs * len(train_loader))
    for epoch in range(args.epochs):
        model.train()
        start, total = time.perf_counter(), torch.zeros(())
        for fields, truth in train_loader:
            loss = relative_error(model(fields), truth)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.detach()
        model.eval()
        with torch.no_grad():
            error = torch.stack(
                [relative_error(model(x), y) for x, y in zip(test_inputs.split(8), test_targets.split(8))]
            )
        print(
            f"epoch {epoch}: train {total.item() / len(train_loader):.4f}, test {error.mean().item():.4f}, "
            f"{time.perf_counter() - start:.1f} s"
        )


if __name__ == "__main__":
    main()
