"""Tell species of ferns apart: a new head on a backbone that stays as it was trained before."""

import argparse
import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.models import resnet18


class FernPhotos(Dataset):
    """Photographs of fronds: the species shows in the spacing and the angle of the pinnae."""

    def __init__(self, count: int, species: int, size: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, species, (count,), generator=generator)
        axis = torch.linspace(-1, 1, size)
        spacing = 6.0 + 2.0 * (self.labels % 4)[:, None, None]
        slope = 0.3 + 0.3 * (self.labels // 4)[:, None, None]
        pinnae = torch.sin(spacing * (axis[None, :, None] + slope * axis[None, None, :].abs()))
        tint = torch.tensor([0.3, 0.7, 0.25])[None, :, None, None]
        noise = 0.2 * torch.randn(count, 3, size, size, generator=generator)
        self.photos = tint * (0.6 + 0.4 * pinnae[:, None]) + noise

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.photos[index], self.labels[index]


def earlier_weights(folder: Path) -> Path:
    """The weights of a backbone, as an earlier training left them on the disk."""
    path = folder / "backbone.pt"
    torch.save(resnet18(weights=None).state_dict(), path)
    return path


class FernClassifier(nn.Module):
    def __init__(self, weights: Path, species: int) -> None:
        super().__init__()
        self.backbone = resnet18(weights=None)
        self.backbone.load_state_dict(torch.load(weights))
        self.backbone.fc = nn.Identity()
        self.head = nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Dropout(0.3), nn.Linear(256, species))

    def train(self, mode: bool = True) -> "FernClassifier":
        super().train(mode)
        self.backbone.eval()  # the running statistics stay those of the earlier training
        return self

    def forward(self, photos: torch.Tensor) -> torch.Tensor:
        return self.head(self.backbone(photos))


def evaluate(accelerator: Accelerator, model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    hits = torch.zeros((), device=accelerator.device)
    count = 0
    with torch.no_grad():
        for photos, labels in loader:
            predicted = model(photos).argmax(dim=1)
            predicted, labels = accelerator.gather_for_metrics((predicted, labels))
            hits += (predicted == labels).sum()
            count += len(labels)
    return hits.item() / count


def train(args: argparse.Namespace) -> None:
    accelerator = Accelerator(cpu=True)
    set_seed(args.seed)
    train_set = FernPhotos(args.photos, args.species, args.size, args.seed)
    valid_set = FernPhotos(96, args.species, args.size, args.seed + 1)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, drop_last=True)
    valid_loader = DataLoader(valid_set, batch_size=48)

    with tempfile.TemporaryDirectory() as folder:
        model = FernClassifier(earlier_weights(Path(folder)), args.species)
    optimizer = torch.optim.AdamW(model.head.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(train_loader))
    criterion = nn.CrossEntropyLoss()
    model, optimizer, train_loader, valid_loader = accelerator.prepare(model, optimizer, train_loader, valid_loader)

    for epoch in range(args.epochs):
        model.train()
        total = torch.zeros((), device=accelerator.device)
        for photos, labels in train_loader:
            loss = criterion(model(photos), labels)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            total += loss.detach()
        accuracy = evaluate(accelerator, model, valid_loader)
        accelerator.print(f"epoch {epoch}: loss {total.item() / len(train_loader):.4f}, accuracy {accuracy:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--photos", type=int, default=640)
    parser.add_argument("--species", type=int, default=12)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=29)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
