"""Retrieves sound effects by their captions: two encoders and a hinge loss over all wrong pairs of a batch."""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from torch import nn

WORDS, CAPTION, BANDS, FRAMES, TOPICS = 600, 12, 40, 32, 48


def make_library(count: int, seed: int) -> dict[str, torch.Tensor]:
    """Spectrograms and captions that share a topic, each with noise of its own."""
    generator = torch.Generator().manual_seed(seed)
    topic = torch.randint(TOPICS, (count,), generator=generator)
    shapes = torch.randn(TOPICS, 1, BANDS, FRAMES // 8, generator=generator)
    sounds = F.interpolate(shapes, size=(BANDS, FRAMES), mode="bilinear", align_corners=False)[topic]
    sounds = sounds + 0.6 * torch.randn(sounds.shape, generator=generator)
    common = torch.randint(WORDS, (count, CAPTION), generator=generator)
    telling = topic[:, None] * 8 + torch.randint(8, (count, CAPTION), generator=generator)
    chosen = torch.rand(count, CAPTION, generator=generator) < 0.5
    return {"sounds": sounds, "captions": torch.where(chosen, telling, common)}


class SoundEncoder(nn.Module):
    def __init__(self, dim: int, width: int = 12) -> None:
        super().__init__()
        sizes = [1, width, 2 * width, 4 * width]
        self.stages = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in zip(sizes, sizes[1:], strict=False))
        self.norms = nn.ModuleList(nn.BatchNorm2d(size) for size in sizes[1:])
        self.project = nn.Linear(sizes[-1], dim)

    def forward(self, sounds: torch.Tensor) -> torch.Tensor:
        x = sounds
        for stage, norm in zip(self.stages, self.norms, strict=True):
            x = F.max_pool2d(F.relu(norm(stage(x))), 2)
        return F.normalize(self.project(x.mean(dim=(2, 3))), dim=1)


class CaptionEncoder(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 96)
        self.read = nn.GRU(96, 128, batch_first=True, bidirectional=True)
        self.project = nn.Linear(256, dim)

    def forward(self, captions: torch.Tensor) -> torch.Tensor:
        states, _ = self.read(self.words(captions))
        return F.normalize(self.project(states.amax(dim=1)), dim=1)


class PairRankingLoss(nn.Module):
    """Hinge on every wrong caption of a sound and on every wrong sound of a caption."""

    def __init__(self, margin: float) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, sounds: torch.Tensor, captions: torch.Tensor) -> torch.Tensor:
        scores = sounds @ captions.t()
        count = len(scores)
        loss = scores.new_zeros(())
        for i in range(count):
            right = scores[i, i]
            wrong = torch.arange(count) != i
            loss = loss + (self.margin + scores[i][wrong] - right).clamp(min=0).sum()
            loss = loss + (self.margin + scores[:, i][wrong] - right).clamp(min=0).sum()
        return loss / count


class Matcher(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.sound, self.caption = SoundEncoder(dim), CaptionEncoder(dim)

    def forward(self, sounds: torch.Tensor, captions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.sound(sounds), self.caption(captions)


@torch.no_grad()
def recall_at(model: Matcher, library: dict[str, torch.Tensor], k: int) -> float:
    model.eval()
    sounds, captions = model(library["sounds"], library["captions"])
    best = (captions @ sounds.t()).topk(k, dim=1).indices
    model.train()
    return float((best == torch.arange(len(best))[:, None]).any(dim=1).float().mean())


def fit(model: Matcher, library: dict[str, torch.Tensor], args: argparse.Namespace) -> None:
    criterion = PairRankingLoss(args.margin)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        total = 0.0
        batches = torch.randperm(len(library["sounds"])).split(args.batch_size)
        for chosen in batches:
            loss = criterion(*model(library["sounds"][chosen], library["captions"][chosen]))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch + 1}: mean loss {total / len(batches):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sounds", type=int, default=960)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--margin", type=float, default=0.2)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    torch.manual_seed(13)
    model = Matcher(args.dim)
    fit(model, make_library(args.sounds, seed=14), args)
    print(f"recall at 10: {recall_at(model, make_library(96, seed=15), 10):.3f}")


if __name__ == "__main__":
    main()
