"""How many leaflets a clover has and how healthy they are: two heads on a small network, trained with accelerate."""

import argparse
import math
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, random_split

LEAFLETS = (2, 3, 4, 5)


def gather_clovers(count: int, size: int, seed: int) -> TensorDataset:
    """Roses with as many petals as leaflets, a pale mark on each, and spots of mildew."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, 1, 1, generator=generator)

    kind = torch.randint(len(LEAFLETS), (count,), generator=generator)
    petals = torch.tensor(LEAFLETS)[kind].view(-1, 1, 1)
    line = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(line, line, indexing="ij")
    dx, dy = x - draw(-0.15, 0.15), y - draw(-0.15, 0.15)
    radius = (dx**2 + dy**2).sqrt()
    turn = torch.atan2(dy, dx) + draw(0, 2 * math.pi)
    outline = draw(0.55, 0.8) * (0.45 + 0.55 * torch.cos(petals * turn / 2).abs())
    leaf = torch.sigmoid(30 * (outline - radius))
    mark = torch.exp(-(((radius - 0.5 * outline) / 0.06) ** 2))
    ill = draw(0, 1)
    spots = (torch.rand(count, size, size, generator=generator) < 0.25 * ill).float() * leaf
    green = leaf * (0.6 + 0.3 * mark)
    pictures = torch.stack([0.4 * green + 0.5 * spots, green, 0.3 * green + 0.5 * spots], dim=1)
    pictures += 0.08 * torch.randn(pictures.shape, generator=generator)
    return TensorDataset(pictures, kind, ill.flatten())


class Separable(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int):
        super().__init__()
        self.spread = nn.Conv2d(inner, inner, 3, stride=stride, padding=1, groups=inner, bias=False)
        self.mix = nn.Conv2d(inner, outer, 1)
        self.norm = nn.GroupNorm(8, outer)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.mix(self.spread(x))))


class CloverNet(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(
            Separable(width, 2 * width, 1), Separable(2 * width, 4 * width, 2), Separable(4 * width, 4 * width, 2)
        )
        self.leaflets = nn.Linear(4 * width, len(LEAFLETS))
        self.health = nn.Linear(4 * width, 1)

    def forward(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        x = self.blocks(F.relu(self.stem(pictures))).mean(dim=(2, 3))
        return self.leaflets(x), self.health(x).squeeze(1).sigmoid()


def objective(outputs: tuple[Tensor, Tensor], kind: Tensor, ill: Tensor) -> Tensor:
    leaflets, health = outputs
    return F.cross_entropy(leaflets, kind) + 2 * F.mse_loss(health, ill)


class Meter:
    def __init__(self):
        self.right = self.error = self.count = 0

    def add(self, outputs: tuple[Tensor, Tensor], kind: Tensor, ill: Tensor) -> None:
        leaflets, health = outputs
        self.right += (leaflets.argmax(1) == kind).sum()
        self.error += (health - ill).abs().sum()
        self.count += len(kind)

    def __str__(self) -> str:
        return f"accuracy {float(self.right) / self.count:.3f}, error {float(self.error) / self.count:.3f}"


def measure(model: nn.Module, batch: list[Tensor], meter: Meter) -> None:
    pictures, kind, ill = batch
    model.eval()
    with torch.no_grad():
        meter.add(model(pictures), kind, ill)
    model.train()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clovers", type=int, default=2400)
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=317)
    args = parser.parse_args()

    set_seed(args.seed)
    accelerator = Accelerator(cpu=True)
    train_set, test_set = random_split(gather_clovers(args.clovers, args.size, args.seed), [0.9, 0.1])
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, 60)
    model = CloverNet(args.width).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.02)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * len(train_loader))
    model, optimizer, scheduler, train_loader, test_loader = accelerator.prepare(
        model, optimizer, scheduler, train_loader, test_loader
    )

    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(args.epochs):
            model.train()
            trained, tested = Meter(), Meter()
            for batch in train_loader:
                pictures, kind, ill = batch
                measure(model, batch, trained)
                outputs = model(pictures)
                optimizer.zero_grad()
                accelerator.backward(objective(outputs, kind, ill))
                optimizer.step()
                scheduler.step()
            for batch in test_loader:
                measure(model, batch, tested)
            accelerator.print(f"epoch {epoch}: train {trained}; test {tested}")
            accelerator.save(accelerator.unwrap_model(model).state_dict(), Path(folder, "clovers.pt"))


if __name__ == "__main__":
    main()
