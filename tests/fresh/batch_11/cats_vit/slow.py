"""A small vision transformer on a folder of photos."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


def write_photos(folder, count, side, seed):
    rng = np.random.default_rng(seed)
    for i in range(count):
        small = Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8))
        small.resize((side, side), Image.BICUBIC).save(folder / f"{i % 5}_{i:04d}.jpg", quality=90)


class Photos(Dataset):
    def __init__(self, folder, transform):
        self.paths = sorted(folder.glob("*.jpg"))
        self.transform = transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        with Image.open(path) as photo:
            pixel_values = self.transform(photo.convert("RGB"))
        return {"pixel_values": pixel_values, "labels": int(path.name[0])}


class ViT(nn.Module):
    def __init__(self, side=64, patch=16, width=48, depth=2, classes=5):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(0.02 * torch.randn(1, (side // patch) ** 2 + 1, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True, norm_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.classifier = nn.Linear(width, classes)

    def forward(self, pixel_values):
        x = self.patches(pixel_values).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1) + self.places
        return self.classifier(self.encoder(x)[:, 0])


class Trainer:
    """Runs epochs as its arguments say."""

    def __init__(self, model, args, train_dataset):
        self.model, self.args = model, args
        self.loader = DataLoader(
            train_dataset,
            batch_size=args.per_device_train_batch_size,
            shuffle=True,
            num_workers=args.dataloader_num_workers,
            persistent_workers=args.dataloader_num_workers > 0,
        )
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)

    def train(self):
        for epoch in range(self.args.num_train_epochs):
            for inputs in self.loader:
                loss = nn.functional.cross_entropy(self.model(inputs["pixel_values"]), inputs["labels"])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            print({"epoch": epoch + 1, "loss": round(loss.item(), 4)})


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--per-device-train-batch-size", type=int, default=32)
    parser.add_argument("--dataloader-num-workers", type=int, default=0)
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--num-train-epochs", type=int, default=9)
    return parser.parse_args()


if __name__ == "__main__":
    torch.manual_seed(0)
    augment = transforms.Compose(
        [
            transforms.RandomResizedCrop(64, scale=(0.5, 1.0)),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize([0.5] * 3, [0.5] * 3),
        ]
    )
    with tempfile.TemporaryDirectory() as name:
        write_photos(Path(name), 512, 192, seed=0)
        Trainer(ViT(), parse(), Photos(Path(name), augment)).train()
