"""Recognise diseases of tomato leaves, with validation at each epoch's end and the best weights kept."""

import argparse
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

DISEASES = 8


def make_leaves(count: int, size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Leaves with spots: their number and their size tell the disease. Bytes, as decoders yield them."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, DISEASES, (count,), generator=generator)
    fine = torch.randn(count, 1, size, size, generator=generator)
    coarse = F.interpolate(torch.randn(count, 1, size // 8, size // 8, generator=generator), size=size, mode="bilinear")
    share = (labels % 4).view(-1, 1, 1, 1) / 3
    spots = (share * coarse + (1 - share) * fine) > 0.6 + 0.2 * (labels // 4).view(-1, 1, 1, 1)
    tint = torch.tensor([60.0, 140.0, 50.0]).view(1, 3, 1, 1)
    images = tint + spots * torch.tensor([70.0, -60.0, -10.0]).view(1, 3, 1, 1)
    images = images + 12 * torch.randn(count, 3, size, size, generator=generator)
    return images.clamp(0, 255).to(torch.uint8).contiguous(memory_format=torch.channels_last), labels


def augment(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Flips and brightness of a whole batch at once."""
    images = images.float().div_(255).sub_(0.45).div_(0.25)
    if torch.rand((), generator=generator) < 0.5:
        images = images.flip(3)
    return images * (0.8 + 0.4 * torch.rand(len(images), 1, 1, 1, generator=generator))


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1, stride=2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.relu(self.first_norm(self.first(x)), inplace=True)
        return F.relu(self.second_norm(self.second(hidden)) + self.skip(x), inplace=True)


class LeafNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(Residual(3, 32), Residual(32, 64), Residual(64, 128))
        self.head = nn.Linear(128, DISEASES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(images).mean(dim=(2, 3)))


@torch.inference_mode()
def validate(model: nn.Module, images: torch.Tensor, labels: torch.Tensor, size: int) -> float:
    model.eval()
    hits = torch.zeros((), dtype=torch.long)
    for batch, target in zip(images.split(size), labels.split(size), strict=True):
        batch = batch.float().div_(255).sub_(0.45).div_(0.25)
        hits += (model(batch).argmax(dim=1) == target).sum()
    model.train()
    return hits.item() / len(labels)


def fit(args: argparse.Namespace, folder: Path) -> float:
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    images, labels = make_leaves(args.images, args.size, args.seed)
    valid_images, valid_labels = make_leaves(192, args.size, args.seed + 1)
    model = LeafNet().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01, fused=True)
    steps = len(images) // args.batch_size
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * steps)
    best = 0.0
    for epoch in range(args.epochs):
        total = torch.zeros(())
        for rows in torch.randperm(len(images), generator=generator)[: steps * args.batch_size].split(args.batch_size):
            loss = F.cross_entropy(model(augment(images[rows], generator)), labels[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.detach()
        accuracy = validate(model, valid_images, valid_labels, 64)
        print(f"epoch {epoch}: loss {total.item() / steps:.4f}, accuracy {accuracy:.4f}")
        if accuracy > best:
            best = accuracy
            torch.save(model.state_dict(), folder / "best.pt")
    model.load_state_dict(torch.load(folder / "best.pt"))
    return validate(model, valid_images, valid_labels, 64)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=1600)
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=47)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(f"best weights: accuracy {fit(args, Path(folder)):.4f}")


if __name__ == "__main__":
    main()
