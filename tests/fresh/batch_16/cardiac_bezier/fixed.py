"""Single-source domain generalisation for cardiac MR: intensities go through random Bezier curves, a U-Net segments."""

import random
from math import comb

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = 4


class LocationScaleAugmentation:
    """Random monotone or inverted curves of intensity, for the whole slice and for each of its structures."""

    def __init__(self, vrange=(0.0, 1.0), background_threshold=0.01, n_times=1000):
        self.vrange, self.threshold, self.n_times = vrange, background_threshold, n_times
        t = np.linspace(0.0, 1.0, n_times)
        self.polynomials = np.array([comb(3, i) * t ** (3 - i) * (1 - t) ** i for i in range(4)]).astype(np.float32)

    def bezier(self, inverse):
        low, high = self.vrange
        xs = [low, random.uniform(low, high), random.uniform(low, high), high]
        ys = [low, random.uniform(low, high), random.uniform(low, high), high]
        curve_x = np.sort(np.array(xs, np.float32) @ self.polynomials)
        curve_y = np.array(ys, np.float32) @ self.polynomials
        return curve_x, curve_y[::-1] if inverse else np.sort(curve_y)

    def transform(self, image, inverse_probability=0.0):
        curve_x, curve_y = self.bezier(random.random() < inverse_probability)
        scale = max(min(random.gauss(1.0, 0.1), 1.1), 0.9)
        return np.clip(np.interp(image, curve_x, curve_y) * scale, *self.vrange)

    def global_view(self, image):
        return self.transform(image).astype(np.float32)

    def local_view(self, image, mask):
        view = np.zeros_like(image)
        for label in range(CLASSES):
            inside = mask == label
            view[inside] = self.transform(image[inside], inverse_probability=1.0 if label == 0 else 0.5)
        view[image <= self.threshold] = 0
        return view


class CardiacSlices(Dataset):
    def __init__(self, count, size=48, seed=0, augment=True):
        rng = np.random.default_rng(seed)
        grid = np.stack(np.meshgrid(np.arange(size), np.arange(size), indexing="ij"))
        self.images, self.masks = [], []
        for _ in range(count):
            cy, cx = rng.uniform(16, 30, 2)
            r = np.hypot(grid[0] - cy, grid[1] - cx)
            side = np.hypot(grid[0] - cy - 3, grid[1] - cx - 16)
            mask = np.select([r < 7, r < 11, side < 8], [1, 2, 3], 0)
            light = np.array([0.2, 0.9, 0.4, 0.75])[mask] + 0.12 * rng.standard_normal((size, size))
            self.images.append(np.clip(light, 0, 1).astype(np.float32))
            self.masks.append(mask)
        self.augmentation = LocationScaleAugmentation() if augment else None

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image, mask = self.images[i], self.masks[i]
        if self.augmentation is None:
            return {"image": image[None], "mask": mask}
        views = self.augmentation.global_view(image), self.augmentation.local_view(image, mask)
        return {"global": views[0][None], "local": views[1][None], "mask": mask}


def block(a, b):
    first = nn.Conv2d(a, b, 3, 1, 1), nn.BatchNorm2d(b), nn.LeakyReLU()
    return nn.Sequential(*first, nn.Conv2d(b, b, 3, 1, 1), nn.BatchNorm2d(b), nn.LeakyReLU())


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down = nn.ModuleList([block(1, width), block(width, 2 * width), block(2 * width, 4 * width)])
        self.up = nn.ModuleList([block(6 * width, 2 * width), block(3 * width, width)])
        self.pool, self.grow = nn.MaxPool2d(2), nn.Upsample(scale_factor=2)
        self.head = nn.Conv2d(width, CLASSES, 1)

    def forward(self, x):
        a = self.down[0](x)
        b = self.down[1](self.pool(a))
        c = self.down[2](self.pool(b))
        y = self.up[0](torch.cat([self.grow(c), b], 1))
        return self.head(self.up[1](torch.cat([self.grow(y), a], 1)))


def dice_score(logits, mask):
    found = logits.argmax(1)
    scores = []
    for label in range(1, CLASSES):
        a, b = found == label, mask == label
        scores.append((2 * (a & b).sum() / (a.sum() + b.sum()).clamp(min=1)).item())
    return sum(scores) / len(scores)


def main(epochs=3, batch_size=4):
    random.seed(0)
    torch.manual_seed(0)
    loader = DataLoader(CardiacSlices(160), batch_size, shuffle=True, drop_last=True)
    held_out = next(iter(DataLoader(CardiacSlices(32, seed=7, augment=False), 32)))
    model = UNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        model.train()
        for step, batch in enumerate(loader):
            loss = criterion(model(batch["global"]), batch["mask"]) + criterion(model(batch["local"]), batch["mask"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                print(f"epoch {epoch} step {step}: {loss.item():.4f}")
        model.eval()
        with torch.no_grad():
            print(f"epoch {epoch}: dice {dice_score(model(held_out['image']), held_out['mask']):.3f}")


if __name__ == "__main__":
    main()
