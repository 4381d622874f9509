"""Capsule network with routing by agreement on drawn runes, with a decoder that draws the winning capsule again."""

from __future__ import annotations

import argparse
import logging
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

LOGGER = logging.getLogger("capsules")


@dataclass
class Config:
    classes: int = 12
    batch_size: int = 16
    epochs: int = 2
    steps_per_epoch: int = 45
    reconstruction: float = 0.0005 * 784
    lr: float = 1e-3


class Runes(Dataset):
    """Each class is a pattern of strokes on a 28 x 28 field, shifted and noisy. Indexed by lists."""

    def __init__(self, count: int, classes: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        shapes = (torch.rand(classes, 1, 7, 7, generator=torch.Generator().manual_seed(99)) > 0.6).float()
        shapes = F.interpolate(shapes, size=28, mode="bilinear", align_corners=False)
        self.labels = torch.randint(0, classes, (count,), generator=generator)
        noise = torch.rand(count, 1, 28, 28, generator=generator) * 0.2
        shift = int(torch.randint(0, 3, (1,), generator=generator))
        self.images = (shapes[self.labels].roll(shift, dims=-1) + noise).clamp(0, 1)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        return self.images[rows], self.labels[rows]


def squash(s: torch.Tensor) -> torch.Tensor:
    square = s.square().sum(dim=-1, keepdim=True)
    return s * square.sqrt() / (1.0 + square)


class PrimaryCapsules(nn.Module):
    def __init__(self, channels: int, kinds: int, size: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, kinds * size, kernel_size=9, stride=2)
        self.size = size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        u = self.conv(x)
        return squash(u.flatten(2).unflatten(1, (-1, self.size)).permute(0, 1, 3, 2).flatten(1, 2))


class RoutedCapsules(nn.Module):
    """Votes of all lower capsules for all classes, then agreement."""

    def __init__(self, lower: int, size_in: int, upper: int, size_out: int, rounds: int = 3) -> None:
        super().__init__()
        self.rounds = rounds
        self.W = nn.Parameter(0.05 * torch.randn(lower, upper, size_out, size_in))

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        votes = torch.einsum("noij,bnj->bnoi", self.W, u)
        logits = votes.new_zeros(votes.shape[:3])
        fixed = votes.detach()
        for round_ in range(self.rounds):
            coupling = logits.softmax(dim=2).unsqueeze(-1)
            if round_ == self.rounds - 1:
                return squash((coupling * votes).sum(dim=1))
            v = squash((coupling * fixed).sum(dim=1))
            logits = logits + (fixed * v.unsqueeze(1)).sum(dim=-1)
        raise ValueError("routing needs a round")


class CapsNet(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 64, kernel_size=9)
        self.primary = PrimaryCapsules(64, kinds=4, size=8)
        self.digits = RoutedCapsules(4 * 36, 8, classes, 16)
        self.decoder = nn.Sequential(
            nn.Linear(classes * 16, 256), nn.ReLU(), nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 784), nn.Sigmoid()
        )

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        v = self.digits(self.primary(F.relu(self.stem(x))))
        lengths = v.norm(dim=-1)
        chosen = lengths.argmax(dim=1) if labels is None else labels
        mask = F.one_hot(chosen, v.size(1)).to(v.dtype)
        return lengths, self.decoder((v * mask.unsqueeze(-1)).flatten(1))


def margin_loss(lengths: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    target = F.one_hot(labels, lengths.size(1)).to(lengths.dtype)
    present = F.relu(0.9 - lengths).square()
    absent = F.relu(lengths - 0.1).square()
    return (target * present + 0.5 * (1 - target) * absent).sum(dim=1).mean()


def evaluate(model: CapsNet, loader: DataLoader) -> float:
    model.eval()
    right = total = 0
    with torch.inference_mode():
        for images, labels in loader:
            lengths, _ = model(images)
            right += (lengths.argmax(1) == labels).sum().item()
            total += labels.numel()
    model.train()
    return right / total


def loader_of(data: Runes, batch_size: int) -> DataLoader:
    return DataLoader(data, sampler=BatchSampler(RandomSampler(data), batch_size, drop_last=True), batch_size=None)


def run(config: Config) -> None:
    train = loader_of(Runes(config.batch_size * config.steps_per_epoch, config.classes, 1), config.batch_size)
    valid = loader_of(Runes(128, config.classes, 2), config.batch_size)
    model = CapsNet(config.classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    for epoch in range(config.epochs):
        total = torch.zeros(())
        for images, labels in train:
            lengths, drawn = model(images, labels)
            loss = margin_loss(lengths, labels) + config.reconstruction * F.mse_loss(drawn, images.flatten(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        schedule.step()
        LOGGER.info("epoch %d: loss %.4f, accuracy %.3f", epoch, total.item() / len(train), evaluate(model, valid))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(0)
    run(Config(epochs=options.epochs, batch_size=options.batch_size))
