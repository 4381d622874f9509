"""Top-down keypoint heatmaps with a little hourglass."""

import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

IMAGE, HEATMAP, JOINTS, SIGMA = 64, 64, 17, 2.0


class KeypointDataset(Dataset):
    def __init__(self, count, seed=0):
        rng = np.random.default_rng(seed)
        self.joints = rng.uniform(6, HEATMAP - 6, (count, JOINTS, 2)).astype(np.float32)
        self.visible = rng.random((count, JOINTS)) < 0.9
        self.noise = rng.standard_normal((64, IMAGE, IMAGE)).astype(np.float32) * 0.1

    def __len__(self):
        return len(self.joints)

    def render(self, i):
        image = np.stack([self.noise[(i + c) % 64] for c in range(3)])
        for j, (x, y) in enumerate(self.joints[i].astype(int)):
            image[j % 3, y - 2 : y + 3, x - 2 : x + 3] += 1.0
        return image

    def generate_target(self, joints, visible):
        grid = np.arange(HEATMAP, dtype=np.float32)
        ex = np.exp(-((grid - joints[:, :1]) ** 2) / (2 * SIGMA**2))
        ey = np.exp(-((grid - joints[:, 1:]) ** 2) / (2 * SIGMA**2)) * visible[:, None]
        return (ey[:, :, None] * ex[:, None, :]).astype(np.float32)

    def __getitem__(self, i):
        target = self.generate_target(self.joints[i], self.visible[i])
        return self.render(i), target, self.visible[i].astype(np.float32)


class Residual(nn.Module):
    def __init__(self, chans):
        super().__init__()
        self.conv = nn.Sequential(
            nn.BatchNorm2d(chans),
            nn.ReLU(),
            nn.Conv2d(chans, chans // 2, 1),
            nn.BatchNorm2d(chans // 2),
            nn.ReLU(),
            nn.Conv2d(chans // 2, chans, 3, padding=1),
        )

    def forward(self, x):
        return x + self.conv(x)


class Hourglass(nn.Module):
    def __init__(self, depth, chans):
        super().__init__()
        self.skip, self.low = Residual(chans), Residual(chans)
        self.inner = Hourglass(depth - 1, chans) if depth > 1 else Residual(chans)

    def forward(self, x):
        low = self.inner(self.low(F.max_pool2d(x, 2)))
        return self.skip(x) + F.interpolate(low, scale_factor=2, mode="nearest")


class PoseModel(nn.Module):
    def __init__(self, chans=16):
        super().__init__()
        self.stem = nn.Conv2d(3, chans, 7, 2, 3)
        self.glass = Hourglass(3, chans)
        self.head = nn.Conv2d(chans, JOINTS, 1)

    def forward(self, x):
        return F.interpolate(self.head(self.glass(self.stem(x))), scale_factor=2, mode="nearest")


class JointsMSELoss(nn.Module):
    def forward(self, output, target, weight):
        return (((output - target) ** 2).mean((2, 3)) * weight).mean()


def pck(output, joints, threshold=4):
    flat = output.flatten(2).argmax(-1)
    found = torch.stack([flat % HEATMAP, flat // HEATMAP], -1).float()
    return ((found - joints).norm(dim=-1) < threshold).float().mean().item()


def train(cfg):
    torch.manual_seed(cfg["seed"])
    train_set, val_set = KeypointDataset(cfg["samples"]), KeypointDataset(32, seed=1)
    loader = DataLoader(train_set, cfg["batch_size"], shuffle=True, drop_last=True)
    model, criterion = PoseModel(), JointsMSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg["lr"])
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, cfg["lr_step"])
    for epoch in range(cfg["epochs"]):
        model.train()
        for i, (image, target, weight) in enumerate(loader):
            loss = criterion(model(image), target, weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if i % 25 == 0:
                print(f"Epoch {epoch} [{i}/{len(loader)}] loss {loss.item():.6f}")
        scheduler.step()
        model.eval()
        with torch.no_grad():
            images = torch.from_numpy(np.stack([val_set.render(i) for i in range(len(val_set))]))
            print(f"Epoch {epoch} PCK {pck(model(images), torch.from_numpy(val_set.joints)):.3f}")
    with tempfile.TemporaryFile() as file:
        torch.save(model.state_dict(), file)


if __name__ == "__main__":
    train({"seed": 0, "samples": 1120, "batch_size": 16, "epochs": 2, "lr": 1e-3, "lr_step": [1]})
