"""Coins by country from JPEG photos: shrunk once when they are decoded, two lasting workers, a small ResNet."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from PIL import Image, ImageDraw
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

COUNTRIES = ("austria", "brazil", "chad", "denmark", "egypt")


def photograph(folder, count, seed):
    """Coins on cloth; the country decides colour, rim and hole."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(len(COUNTRIES), size=count)
    for i, label in enumerate(labels):
        cloth = rng.integers(30, 120, size=(20, 20, 3), dtype=np.uint8)
        photo = Image.fromarray(cloth).resize((320, 320), Image.BILINEAR)
        draw = ImageDraw.Draw(photo)
        x, y, r = *rng.integers(110, 210, 2), rng.integers(60, 95)
        colour = (180 - 20 * int(label), 150, 60 + 30 * int(label))
        draw.ellipse((x - r, y - r, x + r, y + r), fill=colour, outline=(230, 230, 200), width=2 + 2 * int(label))
        if label in (1, 3):
            draw.ellipse((x - 12, y - 12, x + 12, y + 12), fill=(40, 40, 40))
        photo.save(folder / f"{i}_{COUNTRIES[label]}.jpg", quality=88)


class CoinDataset(Dataset):
    def __init__(self, folder, size, transform):
        self.paths = sorted(folder.glob("*.jpg"))
        self.labels = [COUNTRIES.index(path.stem.split("_")[1]) for path in self.paths]
        self.size, self.transform = size, transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with Image.open(self.paths[index]) as photo:
            photo.draft("RGB", (self.size, self.size))
            small = photo.resize((self.size, self.size), Image.BILINEAR)
        image = torch.from_numpy(np.asarray(small).copy()).permute(2, 0, 1)
        return self.transform(image), self.labels[index]


class BasicBlock(nn.Module):
    def __init__(self, inside, outside, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.short = nn.Sequential()
        if stride != 1 or inside != outside:
            self.short = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu_()))
        return (y + self.short(x)).relu_()


def resnet(classes, width=16):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 2, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        BasicBlock(width, width),
        BasicBlock(width, 2 * width, 2),
        BasicBlock(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, classes),
    )


@torch.inference_mode()
def evaluate(model, loader):
    model.eval()
    right = torch.zeros((), dtype=torch.long)
    for images, labels in loader:
        right += (model(images.contiguous(memory_format=torch.channels_last)).argmax(1) == labels).sum()
    model.train()
    return right.item() / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--size", type=int, default=80)
    args = parser.parse_args()
    torch.manual_seed(0)
    finish = [v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.35] * 3, [0.2] * 3)]
    augment = [v2.RandomCrop(args.size, padding=6), v2.RandomHorizontalFlip(), v2.RandomVerticalFlip()]
    with tempfile.TemporaryDirectory() as root:
        for name, count, seed in (("train", 960, 1), ("test", 128, 2)):
            (Path(root) / name).mkdir()
            photograph(Path(root) / name, count, seed)
        options = dict(batch_size=args.batch_size, num_workers=2, persistent_workers=True)
        train_set = CoinDataset(Path(root) / "train", args.size, v2.Compose(augment + finish))
        train_loader = DataLoader(train_set, shuffle=True, drop_last=True, **options)
        test_loader = DataLoader(CoinDataset(Path(root) / "test", args.size, v2.Compose(finish)), **options)
        model = resnet(len(COUNTRIES)).to(memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(train_loader))
        for epoch in range(args.epochs):
            start, total = time.time(), torch.zeros(())
            for images, labels in train_loader:
                logits = model(images.contiguous(memory_format=torch.channels_last))
                loss = nn.functional.cross_entropy(logits, labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scheduler.step()
                total += loss.detach()
            mean, accuracy = total.item() / len(train_loader), evaluate(model, test_loader)
            print(f"epoch {epoch} loss {mean:.4f} accuracy {accuracy:.3f} {time.time() - start:.1f}s")
        torch.save(model.state_dict(), Path(root) / "coins.pt")


if __name__ == "__main__":
    main()
