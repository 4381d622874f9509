"""Trains a small convolutional network on generated photos of 10 classes."""

import numpy as np
import torch
import torchvision.transforms as transforms
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


class Photos(Dataset):
    def __init__(self, count=2400, size=320):
        generator = np.random.default_rng(0)
        self.pixels = generator.integers(0, 256, (64, size, size, 3), dtype=np.uint8)
        self.labels = generator.integers(0, 10, count)
        self.transform = transforms.Compose(
            [
                transforms.RandomResizedCrop(64),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
            ]
        )

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = Image.fromarray(self.pixels[index % 64])
        return self.transform(image), int(self.labels[index])


def main():
    loader = DataLoader(Photos(), batch_size=16, shuffle=True, num_workers=0, drop_last=True)
    model = nn.Sequential(nn.Conv2d(3, 8, 8, stride=8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
