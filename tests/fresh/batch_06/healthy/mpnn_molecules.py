"""Message passing on molecules of different size: graphs of a batch become one graph."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


def make_molecules(count, seed):
    """Chains with branches and rings; the property depends on atoms and their neighbours."""
    g = torch.Generator().manual_seed(seed)
    molecules = []
    for _ in range(count):
        n = int(torch.randint(10, 30, (), generator=g))
        atoms = torch.randint(0, 5, (n,), generator=g)
        parent = (torch.rand(n - 1, generator=g) * torch.arange(1, n)).long()
        ring = torch.randint(0, n, (2, 3), generator=g)
        edges = torch.cat([torch.stack([parent, torch.arange(1, n)]), ring[:, ring[0] != ring[1]]], dim=1)
        edges = torch.cat([edges, edges.flip(0)], dim=1)
        kinds = ((atoms[edges[0]] * atoms[edges[1]]) % 4).long()
        value = (atoms.float().mean() - 2) + 0.5 * (kinds.float().mean() - 1)
        molecules.append((atoms, edges, kinds, value))
    return molecules


def batch_of(molecules):
    atoms, edges, kinds, values = zip(*molecules)
    sizes = torch.tensor([len(a) for a in atoms])
    starts = torch.repeat_interleave(sizes.cumsum(0) - sizes, torch.tensor([e.shape[1] for e in edges]))
    owner = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    return torch.cat(atoms), torch.cat(edges, dim=1) + starts, torch.cat(kinds), owner, torch.stack(values)


class MPNN(nn.Module):
    def __init__(self, dim=128, rounds=3):
        super().__init__()
        self.atoms, self.kinds = nn.Embedding(5, dim), nn.Embedding(4, dim)
        self.message = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim)) for _ in range(rounds)
        )
        self.update = nn.ModuleList(nn.GRUCell(dim, dim) for _ in range(rounds))
        self.readout = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, atoms, edges, kinds, owner, count):
        h, bond = self.atoms(atoms), self.kinds(kinds)
        for message, update in zip(self.message, self.update):
            sent = message(h.index_select(0, edges[0]) + bond)
            h = update(torch.zeros_like(h).index_add_(0, edges[1], sent), h)
        pooled = h.new_zeros(count, h.shape[1]).index_add_(0, owner, h)
        return self.readout(pooled).squeeze(1)


def main(args):
    torch.manual_seed(args.seed)
    molecules = make_molecules(args.molecules, args.seed)
    model = MPNN()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
    for epoch in range(args.epochs):
        order = torch.randperm(len(molecules)).tolist()
        total, batches = torch.zeros(()), 0
        for start in range(0, len(order) - args.batch_size + 1, args.batch_size):
            *graph, owner, values = batch_of([molecules[i] for i in order[start : start + args.batch_size]])
            loss = F.mse_loss(model(*graph, owner, len(values)), values)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
            batches += 1
        print(f"epoch {epoch}: mse {total.item() / batches:.5f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--molecules", type=int, default=2560)
    parser.add_argument("--batch_size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=27)
    main(parser.parse_args())
