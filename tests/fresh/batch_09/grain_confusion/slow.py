"""Varieties of grain from hyperspectral kernels: a spectral network, and a confusion matrix kept while it trains."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

VARIETIES = ["barley", "oats", "rye", "spelt", "triticale", "wheat"]


class Kernels(Dataset):
    """Reflectance spectra of kernels; varieties differ in the position and depth of absorption bands."""

    def __init__(self, count, bands, seed):
        rng = np.random.default_rng(seed)
        axis = np.linspace(0, 1, bands)
        self.label = rng.integers(0, len(VARIETIES), count)
        centre = np.linspace(0.3, 0.4, len(VARIETIES))[self.label][:, None] + rng.normal(0, 0.01, (count, 1))
        depth = np.linspace(0.3, 0.2, len(VARIETIES))[self.label][:, None] + rng.normal(0, 0.03, (count, 1))
        spectra = 0.5 + 0.3 * axis - depth * np.exp(-(((axis - centre) / 0.05) ** 2))
        spectra -= 0.2 * np.exp(-(((axis - 0.75) / 0.04) ** 2)) * rng.uniform(0.8, 1.2, (count, 1))
        spectra = spectra * rng.uniform(0.8, 1.2, (count, 1)) + rng.normal(0, 0.02, (count, bands))
        spectra = (spectra - spectra.mean(1, keepdims=True)) / spectra.std(1, keepdims=True)
        self.spectra = torch.from_numpy(spectra.astype(np.float32)).unsqueeze(1)
        self.label = torch.from_numpy(self.label)

    def __len__(self):
        return len(self.label)

    def __getitems__(self, indices):
        return self.spectra[indices], self.label[indices]


class SpectralNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, 24, 11, 2, 5),
            nn.BatchNorm1d(24),
            nn.ReLU(),
            nn.Conv1d(24, 48, 7, 2, 3),
            nn.BatchNorm1d(48),
            nn.ReLU(),
            nn.Conv1d(48, 48, 5, 2, 2),
            nn.ReLU(),
            nn.AdaptiveMaxPool1d(4),
            nn.Flatten(),
        )
        self.out = nn.Sequential(nn.Dropout(0.2), nn.Linear(192, classes))

    def forward(self, x):
        return self.out(self.body(x))


class Confusion:
    """Rows are true varieties, columns the predicted ones."""

    def __init__(self, classes):
        self.matrix = torch.zeros(classes, classes, dtype=torch.int64)

    def update(self, labels, predicted):
        for t, p in zip(labels.view(-1), predicted.view(-1)):
            self.matrix[t.long(), p.long()] += 1

    def recall(self):
        return self.matrix.diag() / self.matrix.sum(1).clamp(min=1)

    def worst_pair(self):
        off = self.matrix.clone().fill_diagonal_(0)
        row, column = divmod(int(off.argmax()), len(off))
        return VARIETIES[row], VARIETIES[column]


def train(epoch, model, loader, criterion, optimizer):
    model.train()
    confusion, total = Confusion(len(VARIETIES)), 0.0
    for spectra, labels in loader:
        optimizer.zero_grad()
        outputs = model(spectra)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
        confusion.update(labels, outputs.argmax(1))
    true, taken_for = confusion.worst_pair()
    recall = ", ".join(f"{name} {value:.2f}" for name, value in zip(VARIETIES, confusion.recall()))
    print(f"epoch {epoch}: loss {total / len(loader):.4f}; {recall}; most often {true} is taken for {taken_for}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernels", type=int, default=12800)
    parser.add_argument("--bands", type=int, default=160)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(6)
    dataset = Kernels(args.kernels, args.bands, seed=3)
    loader = DataLoader(dataset, args.batch_size, shuffle=True, collate_fn=lambda batch: batch)
    model = SpectralNet(len(VARIETIES))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        train(epoch, model, loader, nn.CrossEntropyLoss(), optimizer)


if __name__ == "__main__":
    main()
