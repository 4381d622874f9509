"""The classic first training script: a small convolutional network on CIFAR10.

Uses ./data if the CIFAR10 archive was unpacked there, else generated images of the same shape.
"""

import sys
from pathlib import Path

import numpy as np
import torch
import torchvision
import torchvision.transforms as transforms
from torch import nn, optim
from torch.nn import functional as F
from torchvision.transforms.functional import to_pil_image


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


class GeneratedImages(torch.utils.data.Dataset):
    """2,000 random 32 x 32 pictures through the same transforms as CIFAR10."""

    def __init__(self, transform, count=2000):
        generator = np.random.default_rng(0)
        self.images = generator.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        self.labels = generator.integers(0, 10, count).tolist()
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.transform(to_pil_image(self.images[index])), self.labels[index]


def load_data(transform):
    if Path("data/cifar-10-batches-py").is_dir():
        return torchvision.datasets.CIFAR10(root="./data", train=True, download=False, transform=transform)
    print("no CIFAR10 in ./data: training on 2,000 generated images of the same shape")
    return GeneratedImages(transform)


def main():
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))])
    trainset = load_data(transform)
    trainloader = torch.utils.data.DataLoader(trainset, batch_size=4, shuffle=True, num_workers=2)

    net = Net()
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(net.parameters(), lr=0.001, momentum=0.9)
    batches = len(trainloader) if "--full" in sys.argv else 500

    for epoch in range(2):
        running_loss = 0.0
        for i, data in enumerate(trainloader):
            if i == batches:
                break
            inputs, labels = data
            optimizer.zero_grad()
            outputs = net(inputs)
            loss = criterion(outputs, labels)
            loss.backward()
            optimizer.step()

            running_loss += loss.item()
            if i % 100 == 99:
                print(f"[{epoch + 1}, {i + 1:5d}] loss: {running_loss / 100:.3f}")
                running_loss = 0.0

    print("Finished Training")


if __name__ == "__main__":
    main()
