"""Scores for docked protein complexes from voxel grids around the interface."""

import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Settings:
    complexes: int = 450
    channels: int = 6
    side: int = 10
    batch_size: int = 32
    epochs: int = 15
    lr: float = 1e-3


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm3d(width)
        self.mix = nn.Conv3d(width, width, 1)

    def forward(self, x):
        return x + F.silu(self.mix(self.norm(x)))


class GridNet(nn.Module):
    def __init__(self, channels, width=12, depth=4):
        super().__init__()
        self.first = nn.Conv3d(channels, width, 3, padding=1)
        self.blocks = nn.ModuleList(Residual(width) for _ in range(depth))
        self.fc1 = nn.Linear(width * 27, 64)
        self.fc2 = nn.Linear(64, 1)

    def forward(self, grid):
        h = self.first(grid)
        for block in self.blocks:
            h = block(h)
        return self.fc2(F.relu(self.fc1(F.adaptive_avg_pool3d(h, 3).flatten(1)))).squeeze(1)


class Trainer:
    def __init__(self, settings):
        self.s = settings
        gen = torch.Generator().manual_seed(0)
        grids = torch.rand(settings.complexes, settings.channels, *[settings.side] * 3, generator=gen)
        scores = grids.mean(dim=(2, 3, 4)).sum(dim=1) + 0.05 * torch.randn(settings.complexes, generator=gen)
        third = settings.complexes // 3
        self.parts = {"train": (grids[:third], scores[:third]), "valid": (grids[third:], scores[third:])}
        self.model = GridNet(settings.channels)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=settings.lr)

    def batches(self, part, shuffle):
        grids, scores = self.parts[part]
        order = torch.randperm(len(grids)) if shuffle else torch.arange(len(grids))
        for rows in order.split(self.s.batch_size):
            yield grids[rows], scores[rows]

    def train_epoch(self):
        self.model.train()
        for grids, scores in self.batches("train", shuffle=True):
            loss = F.mse_loss(self.model(grids), scores)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def evaluate(self, part):
        self.model.eval()
        outputs, losses = [], []
        for grids, scores in self.batches(part, shuffle=False):
            predicted = self.model(grids)
            losses.append(F.mse_loss(predicted, scores))
            outputs.append(predicted)
        return torch.stack(losses).mean().item(), torch.cat(outputs).std().item()

    def fit(self):
        for epoch in range(self.s.epochs):
            start = time.time()
            self.train_epoch()
            fields = [f"{part} loss {self.evaluate(part)[0]:.4f}" for part in self.parts]
            print(f"epoch {epoch}:", ", ".join(fields), f"({time.time() - start:.1f} s)")


if __name__ == "__main__":
    torch.manual_seed(1)
    Trainer(Settings()).fit()
