"""Mark sandbanks on tiles of aerial charts: a small U-Net, trained on tiles that are augmented in workers."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class ChartTiles(Dataset):
    """Grey tiles with blurred banks, and the masks of these; flipped, turned and brightened at random."""

    def __init__(self, count, size, seed):
        rng = np.random.default_rng(seed)
        rows, columns = np.mgrid[0:size, 0:size]
        self.tiles = np.empty((count, size, size), np.float32)
        self.masks = np.zeros((count, size, size), bool)
        for tile, mask in zip(self.tiles, self.masks):
            for _ in range(rng.integers(2, 5)):
                row, column = rng.integers(0, size, 2)
                long, short = rng.uniform(6, 18), rng.uniform(3, 8)
                turn = rng.uniform(0, np.pi)
                along = (rows - row) * np.cos(turn) + (columns - column) * np.sin(turn)
                across = (columns - column) * np.cos(turn) - (rows - row) * np.sin(turn)
                mask |= (along / long) ** 2 + (across / short) ** 2 < 1
            tile[:] = 0.4 * mask + 0.3 * np.sin(rows / 5 + columns / 9) + rng.normal(0, 0.35, (size, size))

    def __len__(self):
        return len(self.tiles)

    def __getitem__(self, index):
        tile, mask = self.tiles[index], self.masks[index]
        turns, flip = int(torch.randint(4, ())), bool(torch.rand(()) < 0.5)
        tile, mask = np.rot90(tile, turns), np.rot90(mask, turns)
        if flip:
            tile, mask = tile[:, ::-1], mask[:, ::-1]
        gain = 0.8 + 0.4 * float(torch.rand(()))
        image = torch.from_numpy(np.ascontiguousarray(tile * gain))
        return image[None], torch.from_numpy(np.ascontiguousarray(mask)).float()[None]


def double_conv(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class SmallUNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down1 = double_conv(1, width)
        self.down2 = double_conv(width, 2 * width)
        self.bottom = double_conv(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.merge2 = double_conv(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.merge1 = double_conv(2 * width, width)
        self.out = nn.Conv2d(width, 1, 1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        first = self.down1(x)
        second = self.down2(self.pool(first))
        x = self.up2(self.bottom(self.pool(second)))
        x = self.merge2(torch.cat([second, x], dim=1))
        x = self.merge1(torch.cat([first, self.up1(x)], dim=1))
        return self.out(x)


def dice(logits, masks, eps=1.0):
    chance = logits.sigmoid()
    overlap = (chance * masks).sum(dim=(1, 2, 3))
    return ((2 * overlap + eps) / (chance.sum(dim=(1, 2, 3)) + masks.sum(dim=(1, 2, 3)) + eps)).mean()


def get_loader(dataset, batch_size, workers=2, shuffle=True):
    return DataLoader(
        dataset, batch_size, shuffle=shuffle, drop_last=True, num_workers=workers, persistent_workers=True
    )


def run_epoch(model, loader, optimizer):
    model.train()
    bce = nn.BCEWithLogitsLoss()
    score, seen = torch.zeros(()), 0
    for tiles, masks in loader:
        logits = model(tiles)
        overlap = dice(logits, masks)
        loss = bce(logits, masks) + 1 - overlap
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        score += overlap.detach()
        seen += 1
    return (score / seen).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiles", type=int, default=64)
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.manual_seed(19)
    loader = get_loader(ChartTiles(args.tiles, args.size, seed=19), args.batch_size)
    model = SmallUNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        score = run_epoch(model, loader, optimizer)
        if epoch % 15 == 14:
            print(f"epoch {epoch + 1}: dice {score:.3f}")


if __name__ == "__main__":
    main()
