"""Action recognition from skeletons: spatial-temporal graph convolutions on 25 joints."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BONES = [(0, 1), (1, 20), (20, 2), (2, 3), (20, 4), (4, 5), (5, 6), (6, 7), (20, 8), (8, 9), (9, 10), (10, 11),
         (0, 12), (12, 13), (13, 14), (14, 15), (0, 16), (16, 17), (17, 18), (18, 19), (7, 21), (7, 22),
         (11, 23), (11, 24)]  # fmt: skip


@dataclass
class Options:
    clips: int = 1600
    frames: int = 48
    joints: int = 25
    classes: int = 10
    batch_size: int = 16
    epochs: int = 2
    base_lr: float = 0.05


class Skeletons(Dataset):
    """Clips of different lengths; a window of fixed length is cut at random and jittered."""

    def __init__(self, options, seed):
        rng = np.random.default_rng(seed)
        self.options = options
        self.labels = rng.integers(options.classes, size=options.clips)
        self.clips = []
        for label in self.labels:
            length = int(rng.integers(options.frames, 2 * options.frames))
            t = np.arange(length)[:, None]
            sway = np.sin(0.05 * (label + 1) * t + np.arange(options.joints))
            clip = np.stack([sway, np.roll(sway, label, axis=1), 0.3 * sway], axis=0)
            self.clips.append((clip + rng.normal(0, 0.2, clip.shape)).astype(np.float32))
        self.rng = np.random.default_rng(seed + 1)

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, index):
        clip = self.clips[index]
        start = self.rng.integers(clip.shape[1] - self.options.frames + 1)
        window = clip[:, start : start + self.options.frames]
        angle = self.rng.uniform(-0.3, 0.3)
        c, s = np.cos(angle), np.sin(angle)
        rotation = np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]], dtype=np.float32)
        return np.einsum("ij,jtv->itv", rotation, window), self.labels[index]


def collate(batch):
    clips, labels = zip(*batch)
    return torch.from_numpy(np.stack(clips)), torch.tensor(labels)


def normalised_adjacency(joints):
    a = torch.eye(joints)
    for i, j in BONES:
        a[i, j] = a[j, i] = 1
    d = a.sum(1).rsqrt()
    return d[:, None] * a * d


class Block(nn.Module):
    def __init__(self, inputs, outputs, adjacency, stride=1):
        super().__init__()
        self.register_buffer("adjacency", adjacency)
        self.importance = nn.Parameter(torch.ones_like(adjacency))
        self.spatial = nn.Conv2d(inputs, outputs, 1)
        self.temporal = nn.Sequential(
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, (9, 1), (stride, 1), (4, 0)),
            nn.BatchNorm2d(outputs),
        )
        self.residual = nn.Conv2d(inputs, outputs, 1, (stride, 1))

    def forward(self, x):
        y = self.spatial(x) @ (self.adjacency * self.importance)
        return torch.relu(self.temporal(y) + self.residual(x))


class STGCN(nn.Module):
    def __init__(self, options):
        super().__init__()
        a = normalised_adjacency(options.joints)
        self.blocks = nn.Sequential(Block(3, 24, a), Block(24, 24, a), Block(24, 48, a, stride=2))
        self.head = nn.Linear(48, options.classes)

    def forward(self, x):
        return self.head(self.blocks(x).mean((2, 3)))


class Processor:
    def __init__(self, options):
        self.options = options
        self.loader = DataLoader(
            Skeletons(options, seed=2), options.batch_size, shuffle=True, collate_fn=collate, drop_last=True
        )
        self.model = STGCN(options)
        self.loss = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=options.base_lr, momentum=0.9, nesterov=True)

    def train(self):
        for epoch in range(self.options.epochs):
            for i, (clips, labels) in enumerate(self.loader):
                loss = self.loss(self.model(clips), labels)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                if i % 25 == 0:
                    print(f"epoch {epoch} batch {i}: loss {loss.item():.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    Processor(Options()).train()
