"""Cracks in ceramic tiles, pixel by pixel: a small encoder-decoder with validation after each epoch."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def fire(count: int, size: int, seed: int) -> TensorDataset:
    """Tiles with a glaze of some colour, and on most of them a crack that wanders from edge to edge."""
    generator = torch.Generator().manual_seed(seed)
    glaze = torch.rand(count, 3, 1, 1, generator=generator)
    tiles = glaze + 0.15 * torch.randn(count, 3, size, size, generator=generator)
    steps = torch.randint(-1, 2, (count, size), generator=generator)
    starts = torch.randint(size // 4, 3 * size // 4, (count, 1), generator=generator)
    rows = (starts + steps.cumsum(dim=1)).clamp(0, size - 1)
    cracked = torch.rand(count, generator=generator) < 0.8
    masks = F.one_hot(rows, size).transpose(1, 2).float() * cracked[:, None, None]
    masks = F.max_pool2d(masks[:, None], 3, stride=1, padding=1)
    return TensorDataset(tiles - 0.35 * masks, masks)


def conv(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True)
    )


class CrackNet(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.down1 = nn.Sequential(conv(3, width), conv(width, width))
        self.down2 = nn.Sequential(conv(width, 2 * width), conv(2 * width, 2 * width))
        self.down3 = nn.Sequential(conv(2 * width, 4 * width), conv(4 * width, 4 * width))
        self.up2 = nn.Sequential(conv(6 * width, 2 * width), conv(2 * width, 2 * width))
        self.up1 = nn.Sequential(conv(3 * width, width), conv(width, width))
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, tiles):
        first = self.down1(tiles)
        second = self.down2(F.max_pool2d(first, 2))
        third = self.down3(F.max_pool2d(second, 2))
        hidden = self.up2(torch.cat([F.interpolate(third, scale_factor=2.0), second], dim=1))
        hidden = self.up1(torch.cat([F.interpolate(hidden, scale_factor=2.0), first], dim=1))
        return self.out(hidden)


def crack_loss(logits, masks):
    probabilities = torch.sigmoid(logits)
    overlap = 2 * (probabilities * masks).sum() + 1
    dice = 1 - overlap / (probabilities.sum() + masks.sum() + 1)
    return F.binary_cross_entropy_with_logits(logits, masks) + dice


class Run:
    def __init__(self, args: argparse.Namespace):
        torch.manual_seed(args.seed)
        self.epochs = args.epochs
        self.train_loader = DataLoader(
            fire(args.tiles, args.size, args.seed), batch_size=args.batch_size, shuffle=True, drop_last=True
        )
        self.valid_loader = DataLoader(fire(args.held_out, args.size, args.seed + 1), batch_size=1)
        self.model = CrackNet(args.width)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.best = 0.0

    def train_epoch(self) -> float:
        self.model.train()
        total = torch.zeros(())
        for tiles, masks in self.train_loader:
            self.optimizer.zero_grad()
            loss = crack_loss(self.model(tiles), masks)
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
        return total.item() / len(self.train_loader)

    @torch.no_grad()
    def validate(self) -> float:
        """Intersection over union of all pixels of the tiles that were held out."""
        self.model.eval()
        shared, either = torch.zeros(()), torch.zeros(())
        for tiles, masks in self.valid_loader:
            found = self.model(tiles) > 0
            shared += (found & (masks > 0)).sum()
            either += (found | (masks > 0)).sum()
        return (shared / either.clamp(min=1)).item()

    def fit(self) -> None:
        for epoch in range(self.epochs):
            loss = self.train_epoch()
            overlap = self.validate()
            self.best = max(self.best, overlap)
            print(f"epoch {epoch}: loss {loss:.4f}, overlap {overlap:.4f} (best {self.best:.4f})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiles", type=int, default=400)
    parser.add_argument("--held-out", type=int, default=240)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--width", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=31)
    Run(parser.parse_args()).fit()
