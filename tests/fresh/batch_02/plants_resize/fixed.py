"""Plant pictures in class folders; transfer of a small residual network, timm-like command line."""

import argparse
import math
import os
import random
import shutil
import tempfile

import numpy as np
import torch
import torch.nn as nn
from PIL import Image
from torch.utils.data import DataLoader, Dataset


def write_pictures(root, classes, each, size):
    rng = np.random.default_rng(0)
    ys, xs = np.mgrid[:size, :size] / size
    for c in range(classes):
        os.makedirs(os.path.join(root, f"plant_{c}"))
        for i in range(each):
            angle = np.arctan2(ys - 0.5, xs - 0.5) + rng.uniform(0, 6)
            leaf = np.cos((c + 3) * angle) * 0.2 + 0.25 > np.hypot(ys - 0.5, xs - 0.5)
            colour = rng.uniform(60, 200, 3)
            picture = np.where(leaf[..., None], colour, 230) + rng.normal(0, 6, (size, size, 3))
            picture = Image.fromarray(picture.clip(0, 255).astype(np.uint8))
            picture.save(os.path.join(root, f"plant_{c}", f"{i}.jpg"), quality=90)


class ImageFolder(Dataset):
    def __init__(self, root, size):
        self.size, self.samples = size, []
        for label, name in enumerate(sorted(os.listdir(root))):
            for file in sorted(os.listdir(os.path.join(root, name))):
                self.samples.append((os.path.join(root, name, file), label))
        self.cache = {path: self.load(path) for path, _ in self.samples}

    def __len__(self):
        return len(self.samples)

    def load(self, path):
        image = Image.open(path).convert("RGB").resize((self.size, self.size), Image.Resampling.BICUBIC)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)

    def __getitem__(self, index):
        path, label = self.samples[index]
        image = self.cache[path]
        if random.random() < 0.5:
            image = image.flip(2)
        return image.float() / 127.5 - 1, label


class Bottleneck(nn.Module):
    def __init__(self, a, b, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(a, b, 3, stride, 1, bias=False),
            nn.BatchNorm2d(b),
            nn.ReLU(inplace=True),
            nn.Conv2d(b, b, 3, 1, 1, bias=False),
            nn.BatchNorm2d(b),
        )
        self.short = nn.Conv2d(a, b, 1, stride, bias=False) if stride > 1 or a != b else nn.Identity()

    def forward(self, x):
        return torch.relu(self.body(x) + self.short(x))


def create_model(num_classes, width=16):
    blocks = [nn.Conv2d(3, width, 3, 2, 1), nn.ReLU()]
    for i in range(3):
        blocks.append(Bottleneck(width * max(1, 2 ** (i - 1)), width * 2**i, 2 if i else 1))
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width * 4, num_classes))


def cosine(step, total, base):
    return 0.5 * base * (1 + math.cos(math.pi * step / total))


def main():
    parser = argparse.ArgumentParser(description="training")
    parser.add_argument("-b", "--batch-size", type=int, default=8)
    parser.add_argument("--img-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--opt", default="sgd")
    parser.add_argument("--smoothing", type=float, default=0.1)
    args = parser.parse_args()
    torch.manual_seed(42)
    random.seed(42)
    root = tempfile.mkdtemp()
    try:
        write_pictures(root, classes=5, each=40, size=224)
        loader = DataLoader(ImageFolder(root, args.img_size), args.batch_size, shuffle=True)
        model = create_model(5)
        optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, nesterov=True)
        criterion = nn.CrossEntropyLoss(label_smoothing=args.smoothing)
        for epoch in range(args.epochs):
            for group in optimizer.param_groups:
                group["lr"] = cosine(epoch, args.epochs, args.lr)
            correct = 0
            for x, y in loader:
                logits = model(x)
                loss = criterion(logits, y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                correct += (logits.argmax(1) == y).sum().item()
            print(f"Train: {epoch} loss {loss.item():.4f} top1 {100 * correct / len(loader.dataset):.1f}")
        torch.save(model.state_dict(), os.path.join(root, "last.pth.tar"))
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
