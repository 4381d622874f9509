"""U-Net for nuclei in microscope pictures, with paired augmentation of picture and mask (PNG files)."""

import argparse
import random
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision.transforms.functional as TF
from PIL import Image, ImageFilter
from torch.utils.data import DataLoader, Dataset


def draw_slides(root, count, size, seed):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:size, 0:size]
    for i in range(count):
        mask = np.zeros((size, size), dtype=bool)
        for _ in range(14):
            cy, cx, a, b = *rng.uniform(0, size, 2), *rng.uniform(14, 40, 2)
            mask |= ((yy - cy) / a) ** 2 + ((xx - cx) / b) ** 2 < 1
        slide = rng.normal(210, 6, (size, size, 3)) - mask[..., None] * np.array([90, 110, 40])
        Image.fromarray(slide.clip(0, 255).astype(np.uint8)).save(root / f"{i:03d}_image.png", compress_level=1)
        Image.fromarray(mask.astype(np.uint8) * 255).save(root / f"{i:03d}_mask.png", compress_level=1)


class PairedTransform:
    """The same geometry for picture and mask; colour and focus for the picture alone."""

    def __init__(self, size):
        self.size = size

    def resize(self, image, mask):
        size = (self.size, self.size)
        return image.resize(size, Image.BILINEAR), mask.resize(size, Image.NEAREST)

    def augment(self, image, mask):
        angle = random.uniform(-30, 30)
        image = image.rotate(angle, Image.BILINEAR)
        mask = mask.rotate(angle, Image.NEAREST)
        if random.random() < 0.5:
            image, mask = TF.hflip(image), TF.hflip(mask)
        image = TF.adjust_brightness(image, random.uniform(0.8, 1.2))
        image = TF.adjust_hue(image, random.uniform(-0.05, 0.05))
        if random.random() < 0.5:
            image = image.filter(ImageFilter.GaussianBlur(1))
        return image, mask

    def __call__(self, image, mask):
        image, mask = self.resize(image, mask)
        image, mask = self.augment(image, mask)
        return TF.to_tensor(image), TF.to_tensor(mask)


class NucleiDataset(Dataset):
    def __init__(self, root, transform):
        self.images = sorted(root.glob("*_image.png"))
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = Image.open(self.images[i]).convert("RGB")
        mask = Image.open(str(self.images[i]).replace("_image", "_mask")).convert("L")
        return self.transform(image, mask)


def double_conv(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.down = nn.ModuleList([double_conv(3, width), double_conv(width, 2 * width)])
        self.bottom = double_conv(2 * width, 4 * width)
        self.up = nn.ModuleList(
            [nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)]
        )
        self.merge = nn.ModuleList([double_conv(4 * width, 2 * width), double_conv(2 * width, width)])
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.bottom(x)
        for up, merge in zip(self.up, self.merge):
            x = merge(torch.cat([up(x), skips.pop()], dim=1))
        return self.out(x)


def dice_loss(logits, target):
    prob = torch.sigmoid(logits)
    overlap = (prob * target).sum(dim=(1, 2, 3))
    return 1 - ((2 * overlap + 1) / (prob.sum(dim=(1, 2, 3)) + target.sum(dim=(1, 2, 3)) + 1)).mean()


def main(args):
    torch.manual_seed(args.seed)
    random.seed(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        draw_slides(Path(folder), args.slides, 512, args.seed)
        dataset = NucleiDataset(Path(folder), PairedTransform(args.size))
        loader = DataLoader(
            dataset, args.batch_size, shuffle=True, drop_last=True, num_workers=2, persistent_workers=True
        )
        model = UNet()
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
        for epoch in range(args.epochs):
            losses = []
            for image, mask in loader:
                logits = model(image)
                loss = F.binary_cross_entropy_with_logits(logits, mask) + dice_loss(logits, mask)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            print(f"Epoch {epoch + 1}: train loss {np.mean(losses):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--slides", type=int, default=64)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=2018)
    main(parser.parse_args())
