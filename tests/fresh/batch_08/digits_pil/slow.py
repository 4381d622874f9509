"""Handwritten digits with a small convolutional network, after the basic example of many libraries."""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


def draw(count, seed):
    """Grey pictures of 28 x 28: a blurred pattern for each of ten classes, moved and with noise."""
    rng = np.random.default_rng(11)
    patterns = np.kron(rng.integers(0, 2, (10, 6, 6)), np.ones((4, 4))) * 180
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, count)
    pictures = np.zeros((count, 28, 28))
    for i, label in enumerate(labels):
        y, x = rng.integers(0, 5, 2)
        pictures[i, y : y + 24, x : x + 24] = patterns[label]
    noisy = pictures + rng.normal(0, 25, pictures.shape)
    return noisy.clip(0, 255).astype(np.uint8), labels.astype(np.int64)


class Digits(Dataset):
    def __init__(self, count, seed, transform):
        self.pictures, self.labels = draw(count, seed)
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = Image.fromarray(self.pictures[index])
        return self.transform(image), int(self.labels[index])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, stride=2)
        self.conv2 = nn.Conv2d(16, 32, 3)
        self.drop = nn.Dropout(0.25)
        self.fc1 = nn.Linear(32 * 25, 96)
        self.fc2 = nn.Linear(96, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(self.drop(torch.flatten(x, 1))))
        return self.fc2(x)


def train(args, model, loader, optimizer, epoch):
    model.train()
    for batch, (data, target) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
        if batch % args.log_interval == 0:
            print(f"epoch {epoch} [{batch * len(data)}/{len(loader.dataset)}] loss {loss.item():.4f}")


@torch.no_grad()
def test(model, loader):
    model.eval()
    correct = 0
    for data, target in loader:
        correct += (model(data).argmax(1) == target).sum().item()
    print(f"test accuracy {100 * correct / len(loader.dataset):.1f} %")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--log-interval", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.34,), (0.36,))])
    train_loader = DataLoader(Digits(15000, 2, transform), batch_size=args.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(Digits(1000, 3, transform), batch_size=500)

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    for epoch in range(1, args.epochs + 1):
        train(args, model, train_loader, optimizer, epoch)
        scheduler.step()
    test(model, test_loader)


if __name__ == "__main__":
    main()
