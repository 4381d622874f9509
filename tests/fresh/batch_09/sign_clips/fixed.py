"""Signs of a sign language from short clips: folders of JPEG frames, segment sampling and a small 3D network."""

import argparse
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.functional import normalize

SIGNS = ["left", "right", "up", "down", "circle"]


def film(folder, sign, frames, size, rng):
    """A bright hand that moves over a dull background, one JPEG per frame."""
    os.makedirs(folder)
    yy, xx = np.mgrid[0:size, 0:size]
    background = rng.normal(90, 10, (size, size, 3))
    start = rng.uniform(0.4, 0.6, 2)
    for i in range(frames):
        t = i / frames - 0.5
        shift = {
            "left": (0, -t), "right": (0, t), "up": (-t, 0), "down": (t, 0),
            "circle": (0.3 * np.sin(6.28 * t), 0.3 * np.cos(6.28 * t)),
        }[sign]  # fmt: skip
        y, x = (start + 0.6 * np.array(shift)) * size
        hand = np.exp(-((yy - y) ** 2 + (xx - x) ** 2) / (size * 2))[..., None] * np.array([150, 110, 90])
        Image.fromarray((background + hand).clip(0, 255).astype(np.uint8)).save(f"{folder}/{i:04d}.jpg", quality=90)


def record(root, clips, frames, size, seed):
    rng = np.random.default_rng(seed)
    for i in range(clips):
        sign = SIGNS[i % len(SIGNS)]
        film(os.path.join(root, sign, f"clip{i:03d}"), sign, frames, size, rng)


class FrameFolder(Dataset):
    """Clips as folders of frames; the clip is cut into equal segments, of which each gives one random frame."""

    def __init__(self, root, segments):
        self.segments = segments
        self.clips = []
        for label, sign in enumerate(SIGNS):
            for clip in sorted(os.listdir(os.path.join(root, sign))):
                self.clips.append((os.path.join(root, sign, clip), label))

    def load_frame(self, path):
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB"))

    def sample_indices(self, total):
        edges = np.linspace(0, total, self.segments + 1).astype(int)
        return [int(torch.randint(low, high, (1,))) for low, high in zip(edges[:-1], edges[1:])]

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, index):
        folder, label = self.clips[index]
        names = sorted(os.listdir(folder))
        indices = self.sample_indices(len(names))
        picked = np.stack([self.load_frame(os.path.join(folder, names[i])) for i in indices])
        clip = torch.from_numpy(picked).permute(0, 3, 1, 2).float() / 255
        clip = normalize(clip, [0.4, 0.38, 0.36], [0.15, 0.13, 0.12])
        return clip.transpose(0, 1), label


class SignNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv3d(3, 16, (3, 5, 5), (1, 2, 2), (1, 2, 2)),
            nn.BatchNorm3d(16),
            nn.ReLU(inplace=True),
            nn.MaxPool3d((1, 2, 2)),
            nn.Conv3d(16, 32, 3, (2, 2, 2), 1),
            nn.BatchNorm3d(32),
            nn.ReLU(inplace=True),
            nn.Conv3d(32, 64, 3, (2, 1, 1), 1),
            nn.ReLU(inplace=True),
        )
        self.fc = nn.Linear(64 * 49, classes)
        self.pool = nn.AdaptiveAvgPool3d((1, 7, 7))

    def forward(self, clips):
        return self.fc(self.pool(self.features(clips)).flatten(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clips", type=int, default=80)
    parser.add_argument("--frames", type=int, default=40)
    parser.add_argument("--size", type=int, default=112)
    parser.add_argument("--segments", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(2)
    with tempfile.TemporaryDirectory() as root:
        record(root, args.clips, args.frames, args.size, seed=6)
        loader = DataLoader(FrameFolder(root, args.segments), args.batch_size, shuffle=True)
        net = SignNet(len(SIGNS))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, nesterov=True)
        criterion = nn.CrossEntropyLoss()
        for epoch in range(args.epochs):
            losses = []
            for clips, labels in loader:
                loss = criterion(net(clips), labels)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
            print(f"[{epoch + 1}/{args.epochs}] loss {torch.stack(losses).mean():.4f}")


if __name__ == "__main__":
    main()
