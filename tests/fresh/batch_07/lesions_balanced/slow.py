"""Skin lesions from a folder of PNG files, seven classes, rare ones drawn more often."""

import os
import tempfile
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler
from torchvision import transforms

CLASSES = ["akiec", "bcc", "bkl", "df", "mel", "nv", "vasc"]
SHARES = [0.05, 0.07, 0.12, 0.03, 0.11, 0.59, 0.03]


@dataclass
class Config:
    images: int = 640
    size: int = 72
    crop: int = 64
    batch_size: int = 16
    epochs: int = 10
    lr: float = 1e-3


def draw_lesions(folder, config, seed):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[: config.size, : config.size]
    for i in range(config.images):
        label = rng.choice(len(CLASSES), p=SHARES)
        radius = 10 + 3 * label + rng.normal(0, 1.5)
        distance = np.hypot(yy - config.size / 2, (xx - config.size / 2) * (1 + 0.1 * label))
        tint = np.array([150 - 12 * label, 90 + 8 * label, 80])
        image = np.where((distance < radius)[..., None], tint, [225, 180, 165])
        image = np.clip(image + rng.normal(0, 14, image.shape), 0, 255).astype(np.uint8)
        Image.fromarray(image).save(os.path.join(folder, f"{i:05d}_{CLASSES[label]}.png"))


class LesionDataset(Dataset):
    def __init__(self, folder, transform):
        names = sorted(os.listdir(folder))
        self.samples = [(os.path.join(folder, n), CLASSES.index(n[6:-4])) for n in names]
        self.transform = transform

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        with Image.open(path) as image:
            return self.transform(image.convert("RGB")), label


def balanced_loader(dataset, config):
    """An epoch in which every class is about equally frequent."""
    labels = torch.tensor([label for _, label in dataset])
    weights = 1.0 / torch.bincount(labels, minlength=len(CLASSES)).clamp(min=1).float()
    sampler = WeightedRandomSampler(weights[labels], num_samples=len(dataset))
    return DataLoader(dataset, batch_size=config.batch_size, sampler=sampler, drop_last=True)


def conv_block(inputs, outputs, stride):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


class LesionNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.stem = conv_block(3, width, 2)
        self.stages = nn.Sequential(
            conv_block(width, width, 1), conv_block(width, 2 * width, 2), conv_block(2 * width, 4 * width, 2)
        )
        self.head = nn.Linear(4 * width, len(CLASSES))

    def forward(self, x):
        return self.head(self.stages(self.stem(x)).mean((2, 3)))


class Trainer:
    def __init__(self, model, dataset, config):
        self.model, self.dataset, self.config = model, dataset, config
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)

    def run_epoch(self, epoch):
        self.model.train()
        total, batches = torch.zeros(()), 0
        for images, labels in balanced_loader(self.dataset, self.config):
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(images), labels)
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
            batches += 1
        print(f"epoch {epoch}: loss {total.item() / batches:.4f}")

    def fit(self):
        for epoch in range(self.config.epochs):
            self.run_epoch(epoch)


def main():
    config = Config()
    torch.manual_seed(3)
    augment = transforms.Compose(
        [
            transforms.RandomCrop(config.crop),
            transforms.RandomHorizontalFlip(),
            transforms.RandomVerticalFlip(),
            transforms.ToTensor(),
            transforms.Normalize([0.76, 0.55, 0.57], [0.14, 0.15, 0.17]),
        ]
    )
    with tempfile.TemporaryDirectory() as folder:
        draw_lesions(folder, config, seed=21)
        Trainer(LesionNet(), LesionDataset(folder, augment), config).fit()


if __name__ == "__main__":
    main()
