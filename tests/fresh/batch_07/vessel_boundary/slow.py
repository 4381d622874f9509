"""Retinal vessels: a small U-Net trained with cross-entropy and the boundary loss."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


def signed_distance(mask):
    """Distance of each pixel to the mask's border: positive outside of it, negative inside."""
    mask = mask.bool()
    if not mask.any() or mask.all():
        return torch.zeros(mask.shape)
    pixels = torch.cartesian_prod(*(torch.arange(n, dtype=torch.float32) for n in mask.shape))
    inner = torch.zeros_like(mask)
    inner[1:-1, 1:-1] = mask[1:-1, 1:-1] & mask[:-2, 1:-1] & mask[2:, 1:-1] & mask[1:-1, :-2] & mask[1:-1, 2:]
    border = (mask & ~inner).nonzero().float()
    distance = torch.cdist(pixels, border).amin(1).view(mask.shape)
    return torch.where(mask, -distance, distance)


class Retina(Dataset):
    """Images with a few winding dark vessels."""

    def __init__(self, count, size, seed):
        rng = np.random.default_rng(seed)
        self.images, self.masks = [], []
        for _ in range(count):
            mask = np.zeros((size, size), dtype=np.int64)
            for _ in range(3):
                t = np.linspace(0, 1, 4 * size)
                row = size * (rng.random() + 0.15 * np.sin(rng.uniform(3, 9) * t + rng.uniform(0, 6)))
                rows, columns = np.clip(row, 1, size - 3).astype(int), np.clip(t * size, 1, size - 3).astype(int)
                for dy in range(3):
                    mask[rows + dy, columns] = 1
            if rng.random() < 0.5:
                mask = mask.T
            image = np.stack([0.7 - 0.3 * mask, 0.4 - 0.25 * mask, 0.2 - 0.1 * mask])
            self.images.append(torch.from_numpy(image + rng.normal(0, 0.1, image.shape)).float())
            self.masks.append(torch.from_numpy(np.ascontiguousarray(mask)))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        mask = self.masks[index]
        return self.images[index], mask, signed_distance(mask)


class Down(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.down1, self.down2, self.down3 = Down(3, width), Down(width, 2 * width), Down(2 * width, 4 * width)
        self.up2, self.up1 = Down(6 * width, 2 * width), Down(3 * width, width)
        self.out = nn.Conv2d(width, 2, 1)

    def forward(self, x):
        x1 = self.down1(x)
        x2 = self.down2(F.max_pool2d(x1, 2))
        x3 = self.down3(F.max_pool2d(x2, 2))
        x = self.up2(torch.cat([F.interpolate(x3, scale_factor=2), x2], 1))
        return self.out(self.up1(torch.cat([F.interpolate(x, scale_factor=2), x1], 1)))


class BoundaryLoss(nn.Module):
    def forward(self, probabilities, distances):
        return (probabilities[:, 1] * distances).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--alpha", type=float, default=0.01)
    args = parser.parse_args()

    torch.manual_seed(33)
    loader = DataLoader(Retina(args.images, args.size, seed=33), args.batch_size, shuffle=True)
    model, boundary = UNet(), BoundaryLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        alpha = args.alpha * (epoch + 1)
        for images, masks, distances in loader:
            logits = model(images)
            loss = F.cross_entropy(logits, masks) + alpha * boundary(logits.softmax(1), distances)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
