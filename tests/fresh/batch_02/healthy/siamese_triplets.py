"""Metric learning with hard triplets mined inside the batch; a custom batch sampler."""

import tempfile

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


class Strokes(Dataset):
    def __init__(self, classes, each, size=32):
        g = torch.Generator().manual_seed(8)
        base = F.interpolate(torch.randn(classes, 1, 8, 8, generator=g), size=size, mode="bilinear")
        self.labels = torch.arange(classes).repeat_interleave(each)
        self.images = base[self.labels] + 0.6 * torch.randn(classes * each, 1, size, size, generator=g)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.images[i], self.labels[i]


class BalancedBatches(Sampler):
    """p classes with k pictures each."""

    def __init__(self, labels, p, k, batches):
        self.index = [torch.nonzero(labels == c).flatten() for c in labels.unique()]
        self.p, self.k, self.batches = p, k, batches

    def __iter__(self):
        for _ in range(self.batches):
            chosen = torch.randperm(len(self.index))[: self.p].tolist()
            yield [i for c in chosen for i in self.index[c][torch.randperm(len(self.index[c]))[: self.k]].tolist()]

    def __len__(self):
        return self.batches


class EmbeddingNet(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.convnet = nn.Sequential(
            nn.Conv2d(1, 32, 5), nn.PReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5), nn.PReLU(), nn.MaxPool2d(2)
        )
        self.fc = nn.Sequential(nn.Flatten(), nn.Linear(64 * 25, 128), nn.PReLU(), nn.Linear(128, dim))

    def forward(self, x):
        return F.normalize(self.fc(self.convnet(x)), dim=1)


def hardest_triplets(embeddings, labels, margin=0.3):
    distance = torch.cdist(embeddings, embeddings)
    same = labels[:, None] == labels[None]
    positive = distance.masked_fill(~same, -1).max(1).values
    negative = distance.masked_fill(same, 9).min(1).values
    return F.relu(positive - negative + margin).mean()


def fit(model, loader, optimizer, scheduler, epochs):
    for epoch in range(epochs):
        total = 0.0
        for images, labels in loader:
            loss = hardest_triplets(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        scheduler.step()
        print(f"Epoch {epoch + 1}/{epochs}. Average triplet loss {total / len(loader):.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    dataset = Strokes(classes=30, each=20)
    loader = DataLoader(dataset, batch_sampler=BalancedBatches(dataset.labels, p=10, k=5, batches=50))
    model = EmbeddingNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.1)
    fit(model, loader, optimizer, scheduler, epochs=3)
    with tempfile.TemporaryFile() as file:
        torch.save(model.state_dict(), file)
