"""U-Net for cell-like blobs: directory of png images and masks, dice loss, train and predict in one script."""

import logging
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset, random_split

torch.set_num_threads(1)


def draw(folder, count, size):
    rng = np.random.default_rng(0)
    ys, xs = np.mgrid[:size, :size]
    for name in ("imgs", "masks"):
        (folder / name).mkdir()
    for i in range(count):
        mask = np.zeros((size, size), bool)
        for _ in range(rng.integers(2, 6)):
            cy, cx, r = rng.integers(8, size - 8), rng.integers(8, size - 8), rng.integers(4, 12)
            mask |= (ys - cy) ** 2 + (xs - cx) ** 2 < r**2
        img = np.clip(120 + 60 * mask + 25 * rng.standard_normal((size, size)), 0, 255)
        Image.fromarray(img.astype(np.uint8)).save(folder / "imgs" / f"{i:03d}.png")
        Image.fromarray((mask * 255).astype(np.uint8)).save(folder / "masks" / f"{i:03d}.png")


class BasicDataset(Dataset):
    def __init__(self, folder):
        self.items = []
        for path in sorted((folder / "imgs").glob("*.png")):
            img = np.asarray(Image.open(path), np.float32) / 255
            mask = np.asarray(Image.open(folder / "masks" / path.name)) > 127
            self.items.append((torch.from_numpy(img)[None], torch.from_numpy(mask).float()))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class DoubleConv(nn.Sequential):
    def __init__(self, a, b):
        super().__init__(
            nn.Conv2d(a, b, 3, padding=1, bias=False),
            nn.BatchNorm2d(b),
            nn.ReLU(inplace=True),
            nn.Conv2d(b, b, 3, padding=1, bias=False),
            nn.BatchNorm2d(b),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        w = width
        self.inc, self.down1, self.down2 = DoubleConv(1, w), DoubleConv(w, 2 * w), DoubleConv(2 * w, 4 * w)
        self.up1, self.up2 = DoubleConv(6 * w, 2 * w), DoubleConv(3 * w, w)
        self.outc = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(F.max_pool2d(x1, 2))
        x3 = self.down2(F.max_pool2d(x2, 2))
        y = self.up1(torch.cat([F.interpolate(x3, scale_factor=2), x2], 1))
        y = self.up2(torch.cat([F.interpolate(y, scale_factor=2), x1], 1))
        return self.outc(y).squeeze(1)


def dice(prob, target, eps=1.0):
    inter = (prob * target).sum((1, 2))
    return ((2 * inter + eps) / (prob.sum((1, 2)) + target.sum((1, 2)) + eps)).mean()


def evaluate(net, loader):
    net.eval()
    with torch.no_grad():
        scores = [dice((net(img) > 0).float(), mask).item() for img, mask in loader]
    net.train()
    return sum(scores) / len(scores)


def train_model(net, folder, epochs=9, batch_size=8, lr=1e-3):
    dataset = BasicDataset(folder)
    n_val = int(len(dataset) * 0.1)
    train_set, val_set = random_split(dataset, [len(dataset) - n_val, n_val])
    train_loader = DataLoader(train_set, batch_size, shuffle=True, drop_last=True)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=lr, momentum=0.9, weight_decay=1e-8)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(1, epochs + 1):
        for img, mask in train_loader:
            pred = net(img)
            loss = criterion(pred, mask) + 1 - dice(torch.sigmoid(pred), mask)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
        logging.info("epoch %d loss %.4f val dice %.4f", epoch, loss.item(), evaluate(net, DataLoader(val_set, 8)))
        torch.save(net.state_dict(), folder / f"checkpoint_epoch{epoch}.pth")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        draw(Path(tmp), 130, 64)
        train_model(UNet(), Path(tmp))
