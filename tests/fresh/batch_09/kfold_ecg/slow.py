"""Arrhythmia in single heart beats, cross-validated over patients: few beats per fold, many short epochs."""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Subset


class BeatDataset(Dataset):
    """Raw beats; each is filtered, shifted, scaled and made noisy when it is asked for."""

    def __init__(self, patients, beats, length, seed):
        rng = np.random.default_rng(seed)
        axis = np.linspace(-1, 1, length)
        self.patient = np.repeat(np.arange(patients), beats)
        self.label = rng.integers(0, 3, len(self.patient))
        wide = np.array([0.02, 0.06, 0.02])[self.label][:, None] * (1 + 0.2 * rng.random((len(self.label), 1)))
        second = np.array([0.0, 0.0, 0.6])[self.label][:, None]
        r_wave = np.exp(-((axis / wide) ** 2))
        self.beats = (
            r_wave - second * np.exp(-(((axis - 0.3) / 0.08) ** 2)) + 0.2 * np.exp(-(((axis - 0.6) / 0.1) ** 2))
        )
        self.beats += 0.15 * np.sin(3 * axis + rng.uniform(0, 6, (len(self.label), 1)))
        self.response = np.exp(-np.linspace(0, 3, length // 2 + 1))

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        spectrum = np.fft.rfft(np.roll(self.beats[i], np.random.randint(-12, 13)))
        beat = np.fft.irfft(spectrum * self.response, n=self.beats.shape[1])
        beat = beat * np.random.uniform(0.8, 1.2) + np.random.normal(0, 0.05, len(beat))
        beat = (beat - beat.mean()) / (beat.std() + 1e-6)
        return torch.from_numpy(beat.astype(np.float32)).unsqueeze(0), int(self.label[i])


class ResBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv1d(channels, channels, 5, padding=2)
        self.conv2 = nn.Conv1d(channels, channels, 5, padding=2)

    def forward(self, x):
        return F.max_pool1d(F.relu(x + self.conv2(F.relu(self.conv1(x)))), 5, stride=2)


class BeatNet(nn.Module):
    def __init__(self, channels=48, blocks=4):
        super().__init__()
        self.inlet = nn.Conv1d(1, channels, 5, padding=2)
        self.blocks = nn.Sequential(*(ResBlock(channels) for _ in range(blocks)))
        self.outlet = nn.Sequential(nn.Flatten(), nn.LazyLinear(32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, x):
        return self.outlet(self.blocks(self.inlet(x)))


def train_fold(dataset, train, held_out, args):
    loader = DataLoader(Subset(dataset, train), args.batch_size, shuffle=True, num_workers=2)
    model = BeatNet()
    model(torch.zeros(2, 1, args.length))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(args.epochs):
        for beats, labels in loader:
            loss = F.cross_entropy(model(beats), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        beats, labels = zip(*(dataset[i] for i in held_out))
        right = (model(torch.stack(beats)).argmax(1) == torch.tensor(labels)).float().mean()
    return loss.item(), right.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--patients", type=int, default=20)
    parser.add_argument("--beats", type=int, default=24)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=90)
    args = parser.parse_args()
    np.random.seed(0)
    torch.manual_seed(0)
    dataset = BeatDataset(args.patients, args.beats, args.length, seed=2)
    accuracies = []
    for fold in range(args.folds):
        held = dataset.patient % args.folds == fold
        loss, accuracy = train_fold(dataset, np.nonzero(~held)[0].tolist(), np.nonzero(held)[0].tolist(), args)
        accuracies.append(accuracy)
        print(f"fold {fold}: last loss {loss:.4f}, accuracy on unseen patients {accuracy:.3f}")
    print(f"mean accuracy {np.mean(accuracies):.3f}")


if __name__ == "__main__":
    main()
