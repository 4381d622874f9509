"""Which mushroom: photographs on disk, transforms written with numpy, and an inverted-residual network."""

import random
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from PIL import Image
from torch.utils.data import DataLoader, Dataset

SPECIES = ("bolete", "chanterelle", "death_cap", "fly_agaric")
CAPS = {
    "bolete": (120, 80, 40),
    "chanterelle": (230, 170, 40),
    "death_cap": (150, 160, 90),
    "fly_agaric": (200, 40, 30),
}


def take_photos(root, per_species, seed):
    """A cap on a stem in front of blurred grass."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:180, 0:240]
    for name in SPECIES:
        folder = Path(root, name)
        folder.mkdir()
        for i in range(per_species):
            grass = rng.normal(0, 1, (12, 16, 3)).repeat(15, 0).repeat(15, 1)
            photo = np.array([70, 110, 60]) + 12 * grass
            y, x, r = rng.uniform(70, 100), rng.uniform(90, 150), rng.uniform(35, 50)
            photo[(abs(xx - x) < r / 4) & (yy > y)] = (220, 210, 190)
            photo[((yy - y) ** 2 * 2 + (xx - x) ** 2 < r**2) & (yy < y + r / 4)] = CAPS[name]
            noisy = photo + rng.normal(0, 6, photo.shape)
            Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(folder / f"{i:03d}.jpg", quality=85)


class Compose:
    def __init__(self, *steps):
        self.steps = steps

    def __call__(self, image):
        for step in self.steps:
            image = step(image)
        return image


class ToFloat:
    """Values from 0 to 1."""

    def __call__(self, image):
        return np.array(image) / 255.0


class RandomBrightness:
    def __init__(self, limit):
        self.limit = limit

    def __call__(self, image):
        gain, offset = random.uniform(1 - self.limit, 1 + self.limit), random.uniform(-self.limit, self.limit) / 2
        return np.clip(image * gain + offset, 0, 1)


class RandomNoise:
    def __init__(self, sigma):
        self.sigma = sigma
        self.pattern = np.random.default_rng(0).standard_normal((512, 512, 3)).astype(np.float32)

    def __call__(self, image):
        top, left = random.randrange(512 - image.shape[0]), random.randrange(512 - image.shape[1])
        return image + self.sigma * self.pattern[top : top + image.shape[0], left : left + image.shape[1]]


class RandomCrop:
    def __init__(self, size):
        self.size = size

    def __call__(self, image):
        top = random.randint(0, image.shape[0] - self.size)
        left = random.randint(0, image.shape[1] - self.size)
        crop = image[top : top + self.size, left : left + self.size]
        return crop[:, ::-1] if random.random() < 0.5 else crop


class Normalize:
    def __init__(self, mean, std):
        self.mean = np.array(mean, dtype=np.float32)
        self.std = np.array(std, dtype=np.float32)

    def __call__(self, image):
        return (image - self.mean) / self.std


class ToTensor:
    def __call__(self, image):
        return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1), dtype=np.float32))


class Mushrooms(Dataset):
    def __init__(self, root, transform):
        self.files = sorted(Path(root).glob("*/*.jpg"))
        self.transform = transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        with Image.open(self.files[i]) as image:
            return self.transform(image), SPECIES.index(self.files[i].parent.name)


def block(cin, cout, stride):
    return nn.Sequential(
        nn.Conv2d(cin, 2 * cin, 1, bias=False), nn.BatchNorm2d(2 * cin), nn.ReLU6(inplace=True),
        nn.Conv2d(2 * cin, 2 * cin, 3, stride, 1, groups=2 * cin, bias=False), nn.BatchNorm2d(2 * cin),
        nn.ReLU6(inplace=True), nn.Conv2d(2 * cin, cout, 1, bias=False), nn.BatchNorm2d(cout),
    )  # fmt: skip


def main():
    random.seed(1)
    torch.manual_seed(1)
    transform = Compose(
        ToFloat(), RandomBrightness(0.2), RandomNoise(0.03), RandomCrop(160),
        Normalize((0.4, 0.42, 0.3), (0.2, 0.18, 0.17)), ToTensor(),
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as root:
        take_photos(root, per_species=80, seed=3)
        loader = DataLoader(Mushrooms(root, transform), batch_size=32, shuffle=True, drop_last=True)
        model = nn.Sequential(
            nn.Conv2d(3, 16, 3, 4, 1), nn.ReLU6(inplace=True), block(16, 24, 2), block(24, 40, 1), block(40, 64, 2),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, len(SPECIES)),
        )  # fmt: skip
        optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9)
        for epoch in range(7):
            total = 0.0
            for images, labels in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
                total += loss.item()
            print(f"epoch {epoch}: {total / len(loader):.4f}")


if __name__ == "__main__":
    main()
