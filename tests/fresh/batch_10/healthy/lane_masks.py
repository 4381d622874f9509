"""Lanes in pictures of roads: PNG files are decoded by two lasting workers while the network learns."""

import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


def roads(folder, count, seed):
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:96, :160]
    for n in range(count):
        lane = np.abs(x - 40 - 60 * rng.random() - (y - 48) * (rng.random() - 0.5)) < 3
        road = (rng.normal(90, 15, (96, 160)) + 120 * lane).clip(0, 255).astype(np.uint8)
        Image.fromarray(road).save(folder / f"{n}_road.png", compress_level=1)
        Image.fromarray(lane).save(folder / f"{n}_lane.png")


class Roads(Dataset):
    def __init__(self, folder, count):
        self.folder, self.count = folder, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        road = np.asarray(Image.open(self.folder / f"{index}_road.png"), dtype=np.float32) / 255
        lane = np.asarray(Image.open(self.folder / f"{index}_lane.png"), dtype=np.float32)
        if torch.rand(()) < 0.5:
            road, lane = road[:, ::-1].copy(), lane[:, ::-1].copy()
        return torch.from_numpy(road)[None], torch.from_numpy(lane)[None]


class LaneNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.enter = nn.Conv2d(1, width, 5, 2, 2)
        self.body = nn.ModuleList(nn.Conv2d(width, width, 3, padding=d, dilation=d) for d in (1, 2, 4, 8))
        self.out = nn.Conv2d(width, 4, 1)

    def forward(self, x):
        x = F.relu(self.enter(x))
        for layer in self.body:
            x = x + F.relu(layer(x))
        return F.pixel_shuffle(self.out(x), 2)


def main(count=320, epochs=6):
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        roads(Path(folder), count, seed=4)
        data = Roads(Path(folder), count)
        loader = DataLoader(data, 16, shuffle=True, num_workers=2, persistent_workers=True, drop_last=True)
        model = LaneNet()
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        weight = torch.tensor(8.0)
        for epoch in range(epochs):
            total = torch.zeros(())
            for road, lane in loader:
                loss = F.binary_cross_entropy_with_logits(model(road), lane, pos_weight=weight)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.detach()
            print(f"epoch {epoch}: loss {total.item() / len(loader):.4f}")


if __name__ == "__main__":
    main()
