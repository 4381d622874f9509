"""Graph property prediction; graphs of a batch are merged into one large graph."""

import argparse
import tempfile

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Molecules(Dataset):
    """Random trees with a few rings; the target counts patterns of atoms along bonds."""

    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.graphs = []
        for _ in range(count):
            n = int(torch.randint(8, 22, (1,), generator=g))
            parent = (torch.rand(n - 1, generator=g) * torch.arange(1, n)).long()
            edges = torch.stack([torch.arange(1, n), parent])
            atoms = torch.randint(0, 9, (n,), generator=g)
            y = ((atoms[edges[0]] + atoms[edges[1]]) % 3 == 0).float().mean()
            self.graphs.append({"atoms": atoms, "edges": torch.cat([edges, edges.flip(0)], 1), "y": y})

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, i):
        return self.graphs[i]


def merge(graphs):
    sizes = torch.tensor([len(g["atoms"]) for g in graphs])
    shift = sizes.cumsum(0) - sizes
    return {
        "atoms": torch.cat([g["atoms"] for g in graphs]),
        "edges": torch.cat([g["edges"] + s for g, s in zip(graphs, shift)], 1),
        "batch": torch.arange(len(graphs)).repeat_interleave(sizes),
        "y": torch.stack([g["y"] for g in graphs]),
    }


class GENConv(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def forward(self, x, edges):
        h = torch.relu(self.norm(x))
        message = torch.zeros_like(h).index_add(0, edges[1], h[edges[0]])
        return x + self.mlp(h + message)


class DeeperGCN(nn.Module):
    def __init__(self, dim, depth):
        super().__init__()
        self.atoms, self.convs = nn.Embedding(9, dim), nn.ModuleList(GENConv(dim) for _ in range(depth))
        self.out = nn.Linear(dim, 1)

    def forward(self, data):
        x = self.atoms(data["atoms"])
        for conv in self.convs:
            x = conv(x, data["edges"])
        graphs = len(data["y"])
        total = torch.zeros(graphs, x.shape[1]).index_add(0, data["batch"], x)
        return self.out(total / torch.bincount(data["batch"], minlength=graphs)[:, None]).squeeze(1)


class ArgsInit:
    def __init__(self):
        parser = argparse.ArgumentParser(description="GEN on molecules")
        parser.add_argument("--batch_size", type=int, default=32, help="input batch size for training")
        parser.add_argument("--epochs", type=int, default=2)
        parser.add_argument("--graphs", type=int, default=1600)
        parser.add_argument("--num_layers", type=int, default=7)
        parser.add_argument("--hidden_channels", type=int, default=48)
        parser.add_argument("--lr", type=float, default=2e-3)
        self.args = parser.parse_args()


def train(model, loader, optimizer):
    model.train()
    total = 0.0
    for data in loader:
        optimizer.zero_grad()
        loss = nn.functional.l1_loss(model(data), data["y"])
        loss.backward()
        optimizer.step()
        total += loss.item() * len(data["y"])
    return total / len(loader.dataset)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    return sum((model(data) - data["y"]).abs().sum().item() for data in loader) / len(loader.dataset)


def main():
    args = ArgsInit().args
    torch.manual_seed(0)
    train_loader = DataLoader(Molecules(args.graphs, 0), args.batch_size, shuffle=True, collate_fn=merge)
    valid_loader = DataLoader(Molecules(128, 1), 64, collate_fn=merge)
    model = DeeperGCN(args.hidden_channels, args.num_layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(1, args.epochs + 1):
        loss = train(model, train_loader, optimizer)
        print(f"Epoch {epoch}: train {loss:.4f} valid {evaluate(model, valid_loader):.4f}")
    with tempfile.TemporaryFile() as file:
        torch.save(model.state_dict(), file)


if __name__ == "__main__":
    main()
