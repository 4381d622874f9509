"""Findings in chest X-rays: a head on the features of a pretrained ResNet, several labels per picture, mean AUC."""

import argparse
import os
import tempfile

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset
from torchvision.models import resnet18

FINDINGS = ("effusion", "nodule", "cardiomegaly")


def make_xrays(count, size, seed):
    """Two dark lungs, a bright heart; findings change a corner, a spot or the width of the heart."""
    g = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    labels = (torch.rand(count, len(FINDINGS), generator=g) < 0.4).float()
    effusion, nodule, heart = labels.T.view(3, count, 1, 1)
    lungs = torch.exp(-((x.abs() - 0.45) ** 2 / 0.06 + y**2 / 0.4))
    images = 0.6 - 0.4 * lungs + 0.05 * torch.randn(count, size, size, generator=g)
    images = images + 0.4 * effusion * torch.exp(-((x - 0.5) ** 2 + (y - 0.6) ** 2) / 0.05)
    spot = torch.rand(count, 2, 1, 1, generator=g) - 0.5
    images = images + 0.5 * nodule * torch.exp(-((x - spot[:, 0]) ** 2 + (y - spot[:, 1]) ** 2) / 0.01)
    images = images + 0.3 * torch.exp(-(x**2 / (0.03 + 0.05 * heart) + (y - 0.3) ** 2 / 0.1))
    return (images.clamp(0, 1) * 255).to(torch.uint8), labels


class XrayDataset(Dataset):
    def __init__(self, images, labels, train):
        self.images, self.labels, self.train = images, labels, train

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index].float().div(255).sub(0.5).div(0.25)
        if self.train:
            top, left = torch.randint(0, 9, (2,)).tolist()
            image = nn.functional.pad(image, (4, 4, 4, 4))[top : top + image.size(0), left : left + image.size(1)]
            image = image * (1 + 0.1 * torch.randn(())) + 0.1 * torch.randn(())
        return image.expand(3, -1, -1), self.labels[index]


def pretrain(path):
    """Stands for the weights of a large collection of X-rays."""
    with torch.random.fork_rng():
        torch.manual_seed(77)
        torch.save(resnet18(weights=None).state_dict(), path)


class XrayClassifier(nn.Module):
    def __init__(self, weights, findings):
        super().__init__()
        self.backbone = resnet18(weights=None)
        self.backbone.load_state_dict(torch.load(weights))
        size = self.backbone.fc.in_features
        self.backbone.fc = nn.Identity()
        self.head = nn.Sequential(nn.Linear(size, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, findings))

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, images):
        with torch.no_grad():
            features = self.backbone(images)
        return self.head(features)


def area_under_curve(scores, labels):
    """Mean over findings, from ranks."""
    ranks = scores.argsort(0).argsort(0).float() + 1
    positive = labels.sum(0)
    area = (ranks * labels).sum(0) - positive * (positive + 1) / 2
    return (area / (positive * (len(labels) - positive)).clamp(min=1)).mean().item()


def train_one_epoch(model, loader, optimizer, scheduler, criterion, epoch):
    model.train()
    running = 0.0
    for step, (images, labels) in enumerate(loader, 1):
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        scheduler.step()
        running += loss.item()
        if step % 30 == 0:
            print(f"epoch {epoch} step {step} loss {running / step:.4f}")


@torch.no_grad()
def validate(model, loader):
    model.eval()
    scores, labels = zip(*[(model(images), target) for images, target in loader])
    return area_under_curve(torch.cat(scores), torch.cat(labels))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.manual_seed(2)
    with tempfile.TemporaryDirectory() as folder:
        weights = os.path.join(folder, "resnet18_xray.pt")
        pretrain(weights)
        train_loader = DataLoader(
            XrayDataset(*make_xrays(960, args.size, 1), train=True), args.batch_size, shuffle=True, drop_last=True
        )
        val_loader = DataLoader(XrayDataset(*make_xrays(80, args.size, 2), train=False), args.batch_size)
        model = XrayClassifier(weights, len(FINDINGS))
        optimizer = torch.optim.AdamW(model.head.parameters(), lr=args.lr)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(train_loader))
        criterion = nn.BCEWithLogitsLoss()
        for epoch in range(args.epochs):
            train_one_epoch(model, train_loader, optimizer, scheduler, criterion, epoch)
            print(f"epoch {epoch} mean AUC {validate(model, val_loader):.3f}")
            torch.save(model.head.state_dict(), os.path.join(folder, f"head_{epoch}.pt"))


if __name__ == "__main__":
    main()
