"""Gestures of a hand puppet in short clips: small convolutions for each frame, an LSTM over the frames."""

import argparse
import json
import math
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

GESTURES = ("wave", "nod", "bow", "clap", "shake", "turn")


def film(count: int, frames: int, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A head and two hands as soft discs, which move as the gesture asks."""
    labels = torch.randint(len(GESTURES), (count,), generator=generator)
    time = torch.linspace(0, 1, frames).view(1, -1)
    tempo = 2 * math.pi * (1.5 + torch.rand(count, 1, generator=generator))
    swing = 0.14 * torch.sin(tempo * time + 6.3 * torch.rand(count, 1, generator=generator))
    still = torch.zeros_like(swing)
    which = labels.view(-1, 1)
    head_x = 0.5 + torch.where(which == 4, swing, still) + torch.where(which == 5, 0.3 * (time - 0.5), still)
    head_y = 0.3 + torch.where(which == 1, swing, still) + torch.where(which == 2, 0.3 * time, still)
    left_x = 0.3 + torch.where(which == 3, swing, still)
    right_x = 0.7 - torch.where(which == 3, swing, still)
    right_y = 0.6 - torch.where(which == 0, swing.abs() * 2, still)
    places = [(head_x, head_y, 0.12), (left_x, still + 0.6, 0.07), (right_x, right_y, 0.07)]
    grid = torch.linspace(0, 1, size)
    clips = 0.2 * torch.rand(count, frames, 1, size, size, generator=generator)
    for x, y, radius in places:
        across = (grid.view(1, 1, 1, -1) - x[..., None, None]) ** 2
        down = (grid.view(1, 1, -1, 1) - y[..., None, None]) ** 2
        clips[:, :, 0] += torch.exp(-(across + down) / radius**2)
    return clips, labels


class FrameEncoder(nn.Module):
    def __init__(self, width: int, features: int):
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, width, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.GroupNorm(4, 2 * width),
            nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3, stride=2, padding=1),
            nn.GroupNorm(4, 2 * width),
            nn.ReLU(),
        )
        self.project = nn.LazyLinear(features)

    def forward(self, frames: Tensor) -> Tensor:
        return self.project(self.convolutions(frames).flatten(1))


class GestureModel(nn.Module):
    def __init__(self, width: int = 16, features: int = 96, hidden: int = 96):
        super().__init__()
        self.encoder = FrameEncoder(width, features)
        self.lstm = nn.LSTM(features, hidden, batch_first=True)
        self.head = nn.Linear(hidden, len(GESTURES))

    def forward(self, clips: Tensor) -> Tensor:
        encoded = torch.stack([self.encoder(clips[:, t]) for t in range(clips.shape[1])], dim=1)
        states, _ = self.lstm(encoded)
        return self.head(states.mean(1))


class Run:
    """What belongs to one run: data, model, optimizer, and the history that is kept in a file."""

    def __init__(self, args: argparse.Namespace, folder: Path):
        self.args, self.folder = args, folder
        generator = torch.Generator().manual_seed(args.seed)
        self.train_set = TensorDataset(*film(args.clips, args.frames, args.size, generator))
        self.test_set = TensorDataset(*film(args.clips // 6, args.frames, args.size, generator))
        self.model = GestureModel()
        self.model(self.train_set.tensors[0][:1])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.history: list[dict[str, float]] = []

    def train(self) -> None:
        loader = DataLoader(self.train_set, batch_size=self.args.batch_size, shuffle=True, drop_last=True)
        scheduler = torch.optim.lr_scheduler.LinearLR(
            self.optimizer, 1.0, 0.1, total_iters=self.args.epochs * len(loader)
        )
        for epoch in range(self.args.epochs):
            self.model.train()
            running = 0.0
            for clips, labels in loader:
                self.optimizer.zero_grad()
                loss = F.cross_entropy(self.model(clips), labels, label_smoothing=0.05)
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                scheduler.step()
                running += loss.detach()
            self.keep(epoch, float(running) / len(loader), self.test())

    @torch.no_grad()
    def test(self) -> float:
        self.model.eval()
        right = 0
        for clips, labels in DataLoader(self.test_set, batch_size=self.args.batch_size):
            right += (self.model(clips).argmax(1) == labels).sum().item()
        return right / len(self.test_set)

    def keep(self, epoch: int, loss: float, accuracy: float) -> None:
        self.history.append({"epoch": epoch, "loss": round(loss, 4), "accuracy": round(accuracy, 4)})
        (self.folder / "history.json").write_text(json.dumps(self.history))
        print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clips", type=int, default=560)
    parser.add_argument("--frames", type=int, default=16)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--seed", type=int, default=300)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        Run(args, Path(folder)).train()


if __name__ == "__main__":
    main()
