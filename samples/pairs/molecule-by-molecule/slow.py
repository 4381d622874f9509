"""Energies of molecules with a message-passing network on graphs of different sizes."""

import torch
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)


def molecule():
    atoms = int(torch.randint(8, 25, (1,)))
    bonds = torch.cat(
        [torch.stack([torch.arange(atoms - 1), torch.arange(1, atoms)]), torch.randint(0, atoms, (2, 6))], 1
    )
    bonds = torch.cat([bonds, bonds.flip(0)], 1)
    kinds = torch.randint(0, 10, (atoms,))
    return kinds, bonds, torch.rand(bonds.shape[1], 1), kinds.float().mean() + atoms / 10


def merge(graphs):
    """Several molecules as one graph without bonds between them."""
    sizes = torch.tensor([len(kinds) for kinds, *_ in graphs])
    starts = sizes.cumsum(0) - sizes
    bonds = torch.cat([bonds + start for (_, bonds, _, _), start in zip(graphs, starts)], 1)
    kinds, lengths = torch.cat([g[0] for g in graphs]), torch.cat([g[2] for g in graphs])
    owner = torch.repeat_interleave(torch.arange(len(graphs)), sizes)
    return kinds, bonds, lengths, owner, torch.stack([g[3] for g in graphs])


class MessagePassing(nn.Module):
    def __init__(self, width=64, rounds=4):
        super().__init__()
        self.embedding, self.rounds = nn.Embedding(10, width), rounds
        self.message = nn.Sequential(nn.Linear(2 * width + 1, width), nn.SiLU(), nn.Linear(width, width))
        self.update = nn.GRUCell(width, width)
        self.readout = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, kinds, bonds, lengths, owner, count):
        x = self.embedding(kinds)
        for _ in range(self.rounds):
            messages = self.message(torch.cat([x[bonds[0]], x[bonds[1]], lengths], 1))
            x = self.update(torch.zeros_like(x).index_add(0, bonds[1], messages), x)
        energy = self.readout(x).squeeze(1)
        return torch.zeros(count).index_add(0, owner, energy)


loader = DataLoader([molecule() for _ in range(400)], batch_size=1, shuffle=True, collate_fn=merge)
model = MessagePassing()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
for step, (kinds, bonds, lengths, owner, energy) in enumerate(loader):
    loss = nn.functional.mse_loss(model(kinds, bonds, lengths, owner, len(energy)), energy)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}: {loss.item():.4f}")
