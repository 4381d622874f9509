"""Keypoint regression from crops; many short epochs with two loader workers."""

import itertools
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset

cfg = {
    "data": {"samples": 96, "size": 32, "joints": 8, "workers_per_gpu": 2, "samples_per_gpu": 16},
    "optimizer": {"type": "Adam", "lr": 1e-3},
    "runner": {"max_epochs": 24},
    "log_config": {"interval": 4},
}


def prepare(root, samples, size, joints):
    rng = np.random.default_rng(4)
    images, labels = [], []
    for _ in range(samples):
        points = rng.uniform(4, size - 4, (joints, 2))
        ys, xs = np.mgrid[:size, :size]
        heat = [np.exp(-((xs - x) ** 2 + (ys - y) ** 2) / 6) for x, y in points]
        image = np.stack([sum(heat[i::3]) for i in range(3)]) + 0.1 * rng.standard_normal((3, size, size))
        images.append(image)
        labels.append(points.tolist())
    np.save(root / "images.npy", np.float32(images))
    # The camera tracks of every frame come with the labels, as they do in motion capture sets.
    tracks = rng.standard_normal((samples, 900)).round(4).tolist()
    (root / "annotations.json").write_text(json.dumps({"keypoints": labels, "tracks": tracks}))


class PoseCrops(Dataset):
    def __init__(self, root, samples):
        self.root, self.samples = root, samples
        self.images = self.labels = None

    def __len__(self):
        return self.samples

    def _open(self):
        self.images = np.load(self.root / "images.npy", mmap_mode="r")
        self.labels = json.loads((self.root / "annotations.json").read_text())

    def __getitem__(self, i):
        if self.labels is None:
            self._open()
        image = torch.from_numpy(np.array(self.images[i]))
        joints = torch.tensor(self.labels["keypoints"][i])
        if torch.rand(()) < 0.5:
            image, joints = image.flip(-1), torch.stack([31 - joints[:, 0], joints[:, 1]], 1)
        return image, joints / 32


class PoseNet(nn.Module):
    def __init__(self, joints):
        super().__init__()
        chans = [3, 24, 48, 64]
        self.backbone = nn.Sequential(
            *(
                nn.Sequential(nn.Conv2d(a, b, 3, 1, 1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2))
                for a, b in itertools.pairwise(chans)
            )
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(64 * 16, 128), nn.ReLU(), nn.Linear(128, 2 * joints))

    def forward(self, x):
        return self.head(self.backbone(x)).view(len(x), -1, 2)


class EpochRunner:
    def __init__(self, model, optimizer, work_dir):
        self.model, self.optimizer, self.work_dir = model, optimizer, work_dir
        self.epoch = self.iter = 0

    def train(self, loader):
        self.model.train()
        for images, joints in loader:
            loss = nn.functional.smooth_l1_loss(self.model(images), joints)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.iter += 1
        if self.epoch % cfg["log_config"]["interval"] == 0:
            print(f"Epoch [{self.epoch}] iter {self.iter} loss {loss.item():.5f}")

    def run(self, loader, max_epochs):
        while self.epoch < max_epochs:
            self.train(loader)
            self.epoch += 1
        torch.save(self.model.state_dict(), self.work_dir / f"epoch_{self.epoch}.pth")


def main():
    torch.manual_seed(0)
    work_dir = Path(tempfile.mkdtemp())
    try:
        data = cfg["data"]
        prepare(work_dir, data["samples"], data["size"], data["joints"])
        loader = DataLoader(
            PoseCrops(work_dir, data["samples"]),
            batch_size=data["samples_per_gpu"],
            shuffle=True,
            num_workers=data["workers_per_gpu"],
        )
        model = PoseNet(data["joints"])
        optimizer = getattr(optim, cfg["optimizer"]["type"])(model.parameters(), lr=cfg["optimizer"]["lr"])
        EpochRunner(model, optimizer, work_dir).run(loader, cfg["runner"]["max_epochs"])
    finally:
        shutil.rmtree(work_dir)


if __name__ == "__main__":
    main()
