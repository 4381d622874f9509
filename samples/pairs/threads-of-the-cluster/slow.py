"""Denoises seismic traces with an autoencoder; as many threads as the cluster grants."""

import os

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(int(os.environ.get("SLURM_CPUS_PER_TASK", "1")))


class AutoEncoder(nn.Module):
    def __init__(self, samples=1024):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(samples, 768), nn.ELU(), nn.Linear(768, 64))
        self.decode = nn.Sequential(nn.Linear(64, 768), nn.ELU(), nn.Linear(768, samples))

    def forward(self, x):
        return self.decode(self.encode(x))


def ricker(time, frequency):
    a = (3.14159 * frequency * time) ** 2
    return (1 - 2 * a) * torch.exp(-a)


def traces(count, samples=1024):
    """Clean traces: three wavelets each."""
    time = torch.linspace(0, 1, samples)
    at, frequency = torch.rand(count, 3, 1), 10 + 20 * torch.rand(count, 3, 1)
    return ricker(time - at, frequency).sum(1)


def main():
    clean = traces(4096)
    model = AutoEncoder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(6):
        order = torch.randperm(len(clean))
        for chosen in order.split(256):
            wanted = clean[chosen]
            loss = nn.functional.mse_loss(model(wanted + 0.2 * torch.randn_like(wanted)), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.5f}")


main()
