"""Estimate the colour of the light in photographs from small patches."""

import os
import tempfile

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


def write_photos(folder, count, side=224):
    rng = np.random.default_rng(0)
    lights = rng.uniform(0.4, 1.0, (count, 3))
    for index, light in enumerate(lights):
        coarse = Image.fromarray(rng.integers(60, 255, (28, 28, 3), dtype=np.uint8)).resize((side, side))
        scene = np.asarray(coarse) * light + rng.normal(0, 3, (side, side, 3))
        Image.fromarray(scene.clip(0, 255).astype(np.uint8)).save(os.path.join(folder, f"{index:04d}.png"))
    return lights / np.linalg.norm(lights, axis=1, keepdims=True)


class PatchDataset(Dataset):
    def __init__(self, folder, lights, patch=44, per_photo=4):
        self.paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
        self.lights = torch.from_numpy(lights).float()
        self.patch, self.per_photo = patch, per_photo

    def __len__(self):
        return len(self.paths) * self.per_photo

    def __getitem__(self, index):
        index //= self.per_photo
        photo = np.asarray(Image.open(self.paths[index]).convert("RGB"))
        top = np.random.randint(photo.shape[0] - self.patch)
        left = np.random.randint(photo.shape[1] - self.patch)
        patch = photo[top : top + self.patch, left : left + self.patch]
        return torch.from_numpy(patch.copy()).permute(2, 0, 1).float() / 255, self.lights[index]


class IlluminantNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 32, 3, stride=2), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(),
            nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(64, 3)

    def forward(self, x):
        return F.normalize(self.head(self.body(x)), dim=1)


def angular_error(guess, light):
    return torch.rad2deg(torch.acos((guess * light).sum(1).clamp(-0.9999, 0.9999))).mean()


def main():
    torch.manual_seed(0)
    np.random.seed(0)
    with tempfile.TemporaryDirectory() as folder:
        lights = write_photos(folder, 120)
        loader = DataLoader(PatchDataset(folder, lights), batch_size=16, shuffle=True)
        model = IlluminantNet()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for epoch in range(5):
            total = 0.0
            for patches, light in loader:
                loss = angular_error(model(patches), light)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            print(f"epoch {epoch}: {total / len(loader):.2f} degrees")


if __name__ == "__main__":
    main()
