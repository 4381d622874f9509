"""Species of reef sponges: a head on the features of a trained network, by accelerate."""

import argparse
import os
import tempfile

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.models import resnet18

SPECIES = 9


class SpongePhotos(Dataset):
    """Patches of colour and texture; photographs for training are mirrored at random."""

    def __init__(self, count: int, size: int, seed: int, augment: bool):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, SPECIES, (count,), generator=generator)
        tints = torch.rand(SPECIES, 3, 1, 1, generator=torch.Generator().manual_seed(99))
        waves = torch.sin(torch.arange(size) * 0.3 * (1 + torch.arange(SPECIES)[:, None]))
        textures = waves[:, None, :, None] * waves[:, None, None, :]
        noise = torch.randn(count, 3, size, size, generator=generator)
        self.photos = tints[self.labels] + 0.3 * textures[self.labels] + 0.4 * noise
        self.augment = augment

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int):
        photo = self.photos[index]
        if self.augment and torch.rand(()) < 0.5:
            photo = photo.flip(-1)
        return photo, self.labels[index]


def trained_backbone(path: str) -> nn.Module:
    """A network as another project left it behind: its layers without the last one."""
    network = resnet18(num_classes=40)
    torch.save(network.state_dict(), path)
    network.load_state_dict(torch.load(path, weights_only=True))
    network.fc = nn.Identity()
    return network.eval()


class SpongeClassifier(nn.Module):
    def __init__(self, backbone: nn.Module, hidden: int):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Sequential(
            nn.LayerNorm(512), nn.Linear(512, hidden), nn.GELU(), nn.Dropout(0.1), nn.Linear(hidden, SPECIES)
        )

    def train(self, mode: bool = True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, photos):
        features = self.backbone(photos)
        return self.head(features)


def evaluate(accelerator: Accelerator, model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    right, count = 0, 0
    for photos, labels in loader:
        with torch.no_grad():
            guessed = model(photos).argmax(dim=-1)
        guessed, labels = accelerator.gather_for_metrics((guessed, labels))
        right += (guessed == labels).sum().item()
        count += len(labels)
    return right / count


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--photos", type=int, default=560)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=21)
    args = parser.parse_args()

    set_seed(args.seed)
    accelerator = Accelerator(cpu=True)
    with tempfile.TemporaryDirectory() as folder:
        backbone = trained_backbone(os.path.join(folder, "backbone.pt"))
    model = SpongeClassifier(backbone, hidden=256)
    optimizer = torch.optim.AdamW(model.head.parameters(), lr=args.lr)
    train_loader = DataLoader(
        SpongePhotos(args.photos, args.size, args.seed, augment=True), args.batch_size, shuffle=True, drop_last=True
    )
    valid_loader = DataLoader(SpongePhotos(64, args.size, args.seed + 1, augment=False), 32)
    model, optimizer, train_loader, valid_loader = accelerator.prepare(model, optimizer, train_loader, valid_loader)

    for epoch in range(args.epochs):
        model.train()
        total = torch.zeros((), device=accelerator.device)
        for photos, labels in train_loader:
            loss = F.cross_entropy(model(photos), labels, label_smoothing=0.05)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            total += loss.detach()
        accuracy = evaluate(accelerator, model, valid_loader)
        accelerator.print(f"epoch {epoch}: loss {total.item() / len(train_loader):.4f}, accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
