"""Finds holes and threads in photos of lace with a small U-shaped network."""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Lace(Dataset):
    """Photos of lace with the class of each pixel. Batches are gathered at once, mirrored as a whole."""

    def __init__(self, photos: int, side: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        axis = torch.arange(side, dtype=torch.float32)
        periods = 6 + 10 * torch.rand(photos, 2, 1, generator=generator)
        waves = torch.sin(6.283 * axis / periods)
        pattern = waves[:, 0].unsqueeze(2) + waves[:, 1].unsqueeze(1)
        self.masks = (pattern > 0.4).to(torch.uint8) + (pattern < -0.6).to(torch.uint8) * 2
        noise = torch.randn(photos, 3, side, side, generator=generator)
        self.photos = (pattern.unsqueeze(1) + noise).to(torch.float16)

    def __len__(self) -> int:
        return len(self.photos)

    def __getitem__(self, index: int) -> int:
        return index

    def collate(self, chosen: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        photos, masks = self.photos[chosen].float(), self.masks[chosen].long()
        if torch.rand(()) < 0.5:
            photos, masks = photos.flip(3), masks.flip(2)
        return photos.contiguous(memory_format=torch.channels_last), masks


class Double(nn.Sequential):
    def __init__(self, before: int, after: int) -> None:
        super().__init__(
            nn.Conv2d(before, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
        )


class LaceNet(nn.Module):
    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.first = Double(3, width)
        self.second = Double(width, 2 * width)
        self.third = Double(2 * width, 4 * width)
        self.pool = nn.MaxPool2d(2)
        self.rise_second = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.back_second = Double(4 * width, 2 * width)
        self.rise_first = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.back_first = Double(2 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, photos: torch.Tensor) -> torch.Tensor:
        first = self.first(photos)
        second = self.second(self.pool(first))
        third = self.third(self.pool(second))
        maps = self.back_second(torch.cat([self.rise_second(third), second], dim=1))
        maps = self.back_first(torch.cat([self.rise_first(maps), first], dim=1))
        return self.head(maps)


def train(model: LaceNet, loader: DataLoader, epochs: int, lr: float) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=epochs * len(loader))
    criterion = nn.CrossEntropyLoss()
    model.train()
    for epoch in range(epochs):
        total = torch.zeros(())
        for photos, masks in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = criterion(model(photos), masks)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.detach()
        print(f"epoch {epoch}: loss {(total / len(loader)).item():.4f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--photos", type=int, default=240)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.manual_seed(79)
    lace = Lace(args.photos, args.side, seed=79)
    loader = DataLoader(lace, batch_size=args.batch_size, shuffle=True, drop_last=True, collate_fn=lace.collate)
    model = LaceNet(classes=3, width=args.width).to(memory_format=torch.channels_last)
    train(model, loader, args.epochs, args.lr)


if __name__ == "__main__":
    main()
