"""Upscaling with an efficient sub-pixel network; PNG files are read once, crops are drawn per batch."""

import math
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from PIL import Image

SETTINGS = {"upscale": 2, "crop": 48, "batch": 12, "epochs": 3, "steps": 50, "lr": 2e-3}


def write_images(folder, count, size):
    rng = np.random.default_rng(2)
    ys, xs = np.mgrid[:size, :size] / size
    for i in range(count):
        waves = sum(np.sin(2 * np.pi * (rng.uniform(1, 9) * xs + rng.uniform(1, 9) * ys)) for _ in range(5))
        Image.fromarray(np.uint8(127 + 25 * waves)).save(folder / f"{i:02d}.png")


def load_images(folder):
    stack = [np.asarray(Image.open(path), np.float32) / 255 for path in sorted(folder.glob("*.png"))]
    return torch.from_numpy(np.stack(stack))[:, None]


class Crops:
    def __init__(self, images, crop, upscale):
        self.images, self.crop, self.upscale = images, crop, upscale

    def draw(self, count):
        which = torch.randint(0, len(self.images), (count,))
        y, x = torch.randint(0, self.images.shape[-1] - self.crop, (2, count))
        span = torch.arange(self.crop)
        target = self.images[which[:, None, None], 0, (y[:, None] + span)[:, :, None], (x[:, None] + span)[:, None]]
        target = target.unsqueeze(1)
        return nn.functional.avg_pool2d(target, self.upscale), target


class Net(nn.Module):
    def __init__(self, upscale):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 48, 5, padding=2),
            nn.ReLU(),
            nn.Conv2d(48, 48, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(48, 24, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(24, upscale**2, 3, padding=1),
            nn.PixelShuffle(upscale),
        )

    def forward(self, x):
        return self.layers(x)


def test(model, crops, criterion):
    with torch.no_grad():
        low, high = crops.draw(32)
        return 10 * math.log10(1 / criterion(model(low), high).item())


def main(cfg):
    torch.manual_seed(123)
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp)
        write_images(folder, 24, 128)
        images = load_images(folder)
        train_set, test_set = (Crops(part, cfg["crop"], cfg["upscale"]) for part in (images[:20], images[20:]))
        model, criterion = Net(cfg["upscale"]), nn.MSELoss()
        optimizer = torch.optim.Adam(model.parameters(), lr=cfg["lr"])
        for epoch in range(1, cfg["epochs"] + 1):
            epoch_loss = 0.0
            for _ in range(cfg["steps"]):
                low, high = train_set.draw(cfg["batch"])
                optimizer.zero_grad()
                loss = criterion(model(low), high)
                loss.backward()
                optimizer.step()
                epoch_loss += loss.item()
            psnr = test(model, test_set, criterion)
            print(f"===> Epoch {epoch} Avg. Loss: {epoch_loss / cfg['steps']:.5f} PSNR: {psnr:.2f} dB")
            torch.save(model.state_dict(), folder / f"model_epoch_{epoch}.pth")


if __name__ == "__main__":
    main(SETTINGS)
