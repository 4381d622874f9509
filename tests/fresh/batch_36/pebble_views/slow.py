"""Representations of pebbles without labels: two views of each picture, invariance, variance and covariance terms."""

import argparse
import csv
import math
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def photograph(count: int, size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Ellipses of eight kinds of stone, with veins and grain, in three colours."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, 1, 1, generator=generator)

    kinds = torch.randint(8, (count,), generator=generator)
    line = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(line, line, indexing="ij")
    angle = draw(0, math.pi)
    across = x * angle.cos() + y * angle.sin()
    along = y * angle.cos() - x * angle.sin()
    body = torch.sigmoid(12 * (0.7 - (across / draw(0.7, 1.1)) ** 2 - (along / draw(0.5, 0.9)) ** 2))
    veins = torch.sin((4 + 3 * (kinds % 4).view(-1, 1, 1)) * across + draw(0, 6))
    grain = torch.randn(count, size, size, generator=generator) * (0.1 + 0.3 * (kinds // 4).view(-1, 1, 1))
    grey = body * (0.6 + 0.3 * veins + grain)
    tint = 0.6 + 0.4 * torch.rand(count, 3, 1, 1, generator=generator)
    return tint * grey.unsqueeze(1), kinds


def augment(pictures: Tensor, crop: int) -> Tensor:
    """One random place, side and brightness for the batch, and noise for each picture."""
    top, left = torch.randint(pictures.shape[-1] - crop + 1, (2,)).tolist()
    view = pictures[..., top : top + crop, left : left + crop]
    if torch.rand(()) < 0.5:
        view = view.flip(-1)
    gain = 0.7 + 0.6 * torch.rand(len(view), 3, 1, 1)
    return gain * view + 0.05 * torch.randn_like(view)


class Encoder(nn.Module):
    def __init__(self, width: int, expand: int):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, width, 4, stride=2, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, 2 * width, 4, stride=2, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(2 * width, 4 * width, 4, stride=2, padding=1),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.expander = nn.Sequential(
            nn.Linear(4 * width, expand), nn.BatchNorm1d(expand), nn.ReLU(inplace=True), nn.Linear(expand, expand)
        )

    def forward(self, view: Tensor) -> Tensor:
        return self.expander(self.trunk(view))


def off_diagonal(square: Tensor) -> Tensor:
    return square - torch.diag(square.diagonal())


def vicreg(a: Tensor, b: Tensor, weights: tuple[float, float, float]) -> Tensor:
    invariance = F.mse_loss(a, b)
    variance = covariance = 0.0
    for z in (a - a.mean(0), b - b.mean(0)):
        variance = variance + F.relu(1 - (z.var(0) + 1e-4).sqrt()).mean() / 2
        covariance = covariance + off_diagonal(z.T @ z / (len(z) - 1)).square().sum() / z.shape[1]
    return weights[0] * invariance + weights[1] * variance + weights[2] * covariance


def effective_rank(z: Tensor) -> float:
    """The exponential of the entropy of the singular values: how many dimensions are in use."""
    values = torch.linalg.svdvals(z.float())
    share = values / values.sum() + 1e-7
    return torch.exp(-(share * share.log()).sum()).item()


class Journal:
    def __init__(self, path: Path, every: int):
        self.file = path.open("w", newline="")
        self.writer = csv.writer(self.file)
        self.writer.writerow(["step", "loss", "effective_rank", "lr"])
        self.every = every

    def record(self, step: int, **values: float | Tensor) -> None:
        if step % self.every == 0:
            self.writer.writerow([step, *(f"{float(value):.5f}" for value in values.values())])
            self.file.flush()

    def close(self) -> None:
        self.file.close()


def probe(model: Encoder, pictures: Tensor, kinds: Tensor, crop: int) -> float:
    """Accuracy of the nearest centre of a kind, of centres that the first half gives."""
    model.eval()
    with torch.no_grad():
        edge = (pictures.shape[-1] - crop) // 2
        features = F.normalize(model.trunk(pictures[..., edge : edge + crop, edge : edge + crop]), dim=1)
    half = len(features) // 2
    member = F.one_hot(kinds[:half], 8).float()
    centres = F.normalize(member.T @ features[:half], dim=1)
    return ((features[half:] @ centres.T).argmax(1) == kinds[half:]).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pebbles", type=int, default=4096)
    parser.add_argument("--size", type=int, default=36)
    parser.add_argument("--crop", type=int, default=32)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--expand", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--log-every", type=int, default=40)
    parser.add_argument("--seed", type=int, default=88)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    pictures, kinds = photograph(args.pebbles, args.size, args.seed)
    model = Encoder(args.width, args.expand)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    steps = args.epochs * (args.pebbles // args.batch_size)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder, "journal.csv"), args.log_every)
        step = 0
        for epoch in range(args.epochs):
            model.train()
            order = torch.randperm(args.pebbles)
            for start in range(0, args.pebbles - args.batch_size + 1, args.batch_size):
                batch = pictures[order[start : start + args.batch_size]]
                a, b = model(augment(batch, args.crop)), model(augment(batch, args.crop))
                loss = vicreg(a, b, (25.0, 25.0, 1.0))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scheduler.step()
                rank = effective_rank(torch.cat([a, b]).detach())
                journal.record(step, loss=loss.detach(), effective_rank=rank, lr=scheduler.get_last_lr()[0])
                step += 1
            accuracy = probe(model, pictures[:1024], kinds[:1024], args.crop)
            print(f"epoch {epoch}: loss {loss.item():.3f}, rank {rank:.1f}, accuracy of the centres {accuracy:.3f}")
            torch.save(model.state_dict(), Path(folder, "encoder.pt"))
        journal.close()


if __name__ == "__main__":
    main()
