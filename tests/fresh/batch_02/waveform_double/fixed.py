"""Parameter estimation from simulated chirps: a chain of transforms and a residual network."""

import tempfile

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset
from transforms import AddNoise, Compose, RandomTime, ToTensor, Whiten

SETTINGS = {
    "samples": 5120,
    "length": 512,
    "batch_size": 32,
    "epochs": 2,
    "lr": 1e-3,
    "hidden": [256, 256, 128],
}


class WaveformDataset(Dataset):
    def __init__(self, samples, length, transform, seed):
        rng = np.random.default_rng(seed)
        self.theta = rng.uniform([5, 0.5], [25, 2.0], (samples, 2))
        t = np.linspace(0, 1, length)
        phase = self.theta[:, :1] * t * (1 + self.theta[:, 1:] * t)
        self.waves = np.sin(2 * np.pi * phase) * np.exp(-((t - 0.6) ** 2) / 0.08)
        self.mean, self.std = self.theta.mean(0), self.theta.std(0)
        self.transform = transform

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, i):
        return self.transform({"wave": self.waves[i], "theta": (self.theta[i] - self.mean) / self.std})


class ResidualBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.BatchNorm1d(dim)
        self.linear1, self.linear2 = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        return x + self.linear2(torch.relu(self.linear1(torch.relu(self.norm(x)))))


class InferenceNetwork(nn.Module):
    """Mean and log variance of the parameters."""

    def __init__(self, length, hidden, parameters=2):
        super().__init__()
        layers, last = [], length
        for dim in hidden:
            layers += [nn.Linear(last, dim), ResidualBlock(dim), ResidualBlock(dim)]
            last = dim
        self.body, self.head = nn.Sequential(*layers), nn.Linear(last, 2 * parameters)

    def forward(self, wave):
        return self.head(self.body(wave)).chunk(2, -1)


def train_epoch(model, loader, optimizer):
    model.train()
    losses = []
    for batch in loader:
        optimizer.zero_grad()
        mean, log_var = model(batch["wave"])
        loss = 0.5 * (log_var + (batch["theta"] - mean) ** 2 / log_var.exp()).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


def main():
    torch.manual_seed(0)
    np.random.seed(0)
    chain = Compose([RandomTime(20), Whiten(0.3), AddNoise(0.3), ToTensor(torch.float32)])
    dataset = WaveformDataset(SETTINGS["samples"], SETTINGS["length"], chain, seed=0)
    loader = DataLoader(dataset, SETTINGS["batch_size"], shuffle=True, drop_last=True)
    model = InferenceNetwork(SETTINGS["length"], SETTINGS["hidden"])
    optimizer = torch.optim.Adam(model.parameters(), lr=SETTINGS["lr"])
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, SETTINGS["epochs"])
    with tempfile.TemporaryDirectory() as train_dir:
        for epoch in range(1, SETTINGS["epochs"] + 1):
            loss = train_epoch(model, loader, optimizer)
            scheduler.step()
            print(f"Train Epoch: {epoch} Average Loss: {loss:.4f}")
            torch.save({"model": model.state_dict(), "epoch": epoch}, f"{train_dir}/model_latest.pt")


if __name__ == "__main__":
    main()
