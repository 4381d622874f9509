"""Traffic on a network of road sensors: spectral graph convolutions between gated convolutions in time (STGCN)."""

import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

NODES, HISTORY, HORIZON = 480, 12, 3


def make_network(folder, seed=4):
    """Sensors along roads; the speed of one follows that of its neighbours. Saved as PEMS data sets are, in one npz."""
    rng = np.random.default_rng(seed)
    place = rng.uniform(0, 1, (NODES, 2))
    distance = np.linalg.norm(place[:, None] - place[None], axis=2)
    adj = np.exp(-((distance / 0.08) ** 2)) * (distance < 0.16)
    np.fill_diagonal(adj, 0)
    mix = adj / np.maximum(adj.sum(axis=1, keepdims=True), 1e-6)
    t = np.arange(1500)
    speed = np.empty((len(t), NODES), dtype=np.float32)
    state = rng.normal(size=NODES)
    for i in t:
        state = 0.6 * state + 0.35 * mix @ state + rng.normal(0, 0.3, NODES)
        speed[i] = 60 + 8 * np.sin(2 * np.pi * i / 288) + 5 * state
    np.savez(os.path.join(folder, "network.npz"), data=speed, adj=adj.astype(np.float32))


def scaled_laplacian(adj):
    """2 L / lambda_max - I, for Chebyshev polynomials."""
    degree = adj.sum(dim=1).clamp(min=1e-6)
    norm = degree.rsqrt()
    laplacian = torch.eye(len(adj)) - norm[:, None] * adj * norm[None]
    lambda_max = torch.linalg.eigvalsh(laplacian).max()
    return 2 * laplacian / lambda_max - torch.eye(len(adj))


class ChebConv(nn.Module):
    def __init__(self, cin, cout, k):
        super().__init__()
        self.k = k
        self.weight = nn.Linear(k * cin, cout)

    def forward(self, x, laplacian):
        """x: batch, time, nodes, channels."""
        terms = [x, laplacian @ x]
        for _ in range(2, self.k):
            terms.append(2 * laplacian @ terms[-1] - terms[-2])
        return self.weight(torch.cat(terms, dim=-1))


class GatedTime(nn.Module):
    def __init__(self, cin, cout, kernel=3):
        super().__init__()
        self.conv = nn.Conv2d(cin, 2 * cout, (kernel, 1))

    def forward(self, x):
        value, gate = self.conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1).chunk(2, dim=-1)
        return value * torch.sigmoid(gate)


class STBlock(nn.Module):
    def __init__(self, cin, middle, cout, k):
        super().__init__()
        self.before = GatedTime(cin, middle)
        self.graph = ChebConv(middle, middle, k)
        self.after = GatedTime(middle, cout)
        self.norm = nn.LayerNorm(cout)

    def forward(self, x, laplacian):
        x = F.relu(self.graph(self.before(x), laplacian))
        return self.norm(self.after(x))


class STGCN(nn.Module):
    def __init__(self, adj, width=16, k=3):
        super().__init__()
        self.register_buffer("adj", adj)
        self.blocks = nn.ModuleList([STBlock(1, width, width, k), STBlock(width, width, width, k)])
        self.head = nn.Linear(width * (HISTORY - 8), HORIZON)

    def forward(self, x):
        laplacian = scaled_laplacian(self.adj)
        for block in self.blocks:
            x = block(x, laplacian)
        return self.head(x.permute(0, 2, 1, 3).flatten(2))


def windows(series):
    parts = series.unfold(0, HISTORY + HORIZON, 1)
    return parts[..., :HISTORY].transpose(1, 2)[..., None], parts[..., HISTORY:]


def main():
    torch.manual_seed(4)
    with tempfile.TemporaryDirectory() as folder:
        make_network(folder)
        with np.load(os.path.join(folder, "network.npz")) as file:
            speed, adj = torch.from_numpy(file["data"]), torch.from_numpy(file["adj"])
    x, y = windows((speed - speed.mean()) / speed.std())
    cut = int(0.9 * len(x))
    model = STGCN(adj)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for epoch in range(1):
        model.train()
        total = 0.0
        order = torch.randperm(cut).split(4)
        for i, rows in enumerate(order):
            loss = F.l1_loss(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            if i % 40 == 0:
                print(f"epoch {epoch} step {i} mae {loss.item():.4f}")
        model.eval()
        with torch.no_grad():
            held = F.l1_loss(model(x[cut : cut + 64]), y[cut : cut + 64])
        print(f"epoch {epoch} train {total / len(order):.4f} held-out {held.item():.4f}")


if __name__ == "__main__":
    main()
