"""Embed photographs of coins so that those of one die lie together: a multi-similarity loss."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    dies: int = 200
    photos: int = 12
    size: int = 32
    dies_per_batch: int = 24
    photos_per_die: int = 4
    dim: int = 64
    steps: int = 240
    lr: float = 1e-3
    seed: int = 21


class Hoard:
    """Photographs of coins: each die has a relief of its own, each coin its wear and light."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.generator = torch.Generator().manual_seed(config.seed)
        coarse = torch.randn(config.dies, 1, 8, 8, generator=self.generator)
        self.reliefs = F.interpolate(coarse, size=config.size, mode="bilinear", align_corners=False)

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        config = self.config
        dies = torch.randperm(config.dies, generator=self.generator)[: config.dies_per_batch]
        labels = dies.repeat_interleave(config.photos_per_die)
        light = 0.6 + 0.8 * torch.rand(len(labels), 1, 1, 1, generator=self.generator)
        wear = 1.0 * torch.randn(len(labels), 1, config.size, config.size, generator=self.generator)
        return self.reliefs[labels] * light + wear, labels


class ResidualBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(hidden)) + self.skip(x))


class CoinEncoder(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(ResidualBlock(1, 16, 2), ResidualBlock(16, 32, 2), ResidualBlock(32, 64, 2))
        self.out = nn.Linear(64, dim)

    def forward(self, photos: torch.Tensor) -> torch.Tensor:
        return F.normalize(self.out(self.blocks(photos).mean(dim=(2, 3))), dim=1)


class MultiSimilarityLoss(nn.Module):
    """Weighs pairs by their own similarity and by that of the others of the anchor."""

    def __init__(self, threshold: float = 0.5, margin: float = 0.1, alpha: float = 2.0, beta: float = 40.0) -> None:
        super().__init__()
        self.threshold = threshold
        self.margin = margin
        self.alpha = alpha
        self.beta = beta

    def forward(self, embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        similarity = embeddings @ embeddings.t()
        same = labels[:, None] == labels[None, :]
        itself = torch.eye(len(labels), dtype=torch.bool)
        positive, negative = same & ~itself, ~same
        lowest = similarity.masked_fill(~positive, torch.inf).amin(dim=1, keepdim=True)
        highest = similarity.masked_fill(~negative, -torch.inf).amax(dim=1, keepdim=True)
        positive = positive & (similarity - self.margin < highest)
        negative = negative & (similarity + self.margin > lowest)
        both = positive.any(dim=1) & negative.any(dim=1)
        drawn = torch.exp(-self.alpha * (similarity - self.threshold)) * positive
        driven = torch.exp(self.beta * (similarity - self.threshold)) * negative
        pull = torch.log1p(drawn.sum(dim=1)) / self.alpha
        push = torch.log1p(driven.sum(dim=1)) / self.beta
        return ((pull + push) * both).sum() / len(labels)


@torch.inference_mode()
def recall_at_one(encoder: nn.Module, hoard: Hoard) -> float:
    encoder.eval()
    photos, labels = hoard.batch()
    embeddings = encoder(photos)
    similarity = (embeddings @ embeddings.t()).fill_diagonal_(-2.0)
    encoder.train()
    return (labels[similarity.argmax(dim=1)] == labels).float().mean().item()


def main() -> None:
    config = Config()
    torch.manual_seed(config.seed)
    hoard = Hoard(config)
    encoder = CoinEncoder(config.dim)
    criterion = MultiSimilarityLoss()
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=config.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.steps)

    for step in range(1, config.steps + 1):
        photos, labels = hoard.batch()
        loss = criterion(encoder(photos), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 60 == 0:
            print(f"step {step}: loss {loss.item():.4f}, recall@1 {recall_at_one(encoder, hoard):.3f}")


if __name__ == "__main__":
    main()
