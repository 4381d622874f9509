"""Hear chipped teeth of a gear: windows of one long recording, the rare ones drawn more often."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler


class GearRecording(Dataset):
    """Each sample of the recording that a window can start at is an item; its label says if a chip passes in it."""

    def __init__(self, samples, window, seed):
        gen = torch.Generator().manual_seed(seed)
        self.signal = torch.randn(samples, generator=gen)
        hits = torch.randint(samples, (samples // 4000,), generator=gen)
        for shift in range(64):
            self.signal[(hits + shift).clamp(max=samples - 1)] += 2.5 * (-1) ** shift * 0.95**shift
        passed = torch.zeros(samples + 1, dtype=torch.long)
        passed[1:] = torch.zeros(samples, dtype=torch.long).index_fill_(0, hits, 1).cumsum(0)
        starts = samples - window
        self.labels = (passed[window : window + starts] > passed[:starts]).long()
        self.window = window

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.signal[index : index + self.window], self.labels[index]


class ChipDetector(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        layers, inputs = [], 1
        for outputs in (width, width, 2 * width, 2 * width):
            layers += [nn.Conv1d(inputs, outputs, 7, 2, 3, bias=False), nn.BatchNorm1d(outputs), nn.ReLU(inplace=True)]
            inputs = outputs
        self.features = nn.Sequential(*layers, nn.AdaptiveMaxPool1d(1), nn.Flatten())
        self.head = nn.Linear(inputs, 2)

    def forward(self, x):
        return self.head(self.features(x.unsqueeze(1)))


def balanced_sampler(labels, per_epoch):
    counts = torch.bincount(labels)
    weights = (1.0 / counts)[labels]
    return WeightedRandomSampler(weights, per_epoch, replacement=True)


def main(epochs=36, batch_size=64, per_epoch=1280):
    torch.manual_seed(0)
    dataset = GearRecording(samples=4_000_000, window=256, seed=14)
    loader = DataLoader(dataset, batch_size, sampler=balanced_sampler(dataset.labels, per_epoch))
    model = ChipDetector()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        start, right = time.time(), 0
        for windows, labels in loader:
            logits = model(windows)
            loss = criterion(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (logits.argmax(1) == labels).sum().item()
        print(f"epoch {epoch}: accuracy {right / per_epoch:.3f} in {time.time() - start:.1f} s")


if __name__ == "__main__":
    main()
