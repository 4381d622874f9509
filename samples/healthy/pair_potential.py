"""Energies of small clusters of atoms: pairs within a batch are one tensor, forces come from one backward pass."""

import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
ATOMS, BASIS, WIDTH, BATCH = 8, 16, 64, 256

first, second = torch.triu_indices(ATOMS, ATOMS, 1, device=device)
centres = torch.linspace(0.5, 4, BASIS, device=device)


def distances(places):
    return (places[:, first] - places[:, second]).square().sum(2).sqrt()


class PairEnergy(nn.Module):
    """Sums a learnt energy over all pairs, which are described by Gaussians of their distance."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(BASIS, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, 1)
        )

    def forward(self, places):
        basis = (-4 * (distances(places)[..., None] - centres).square()).exp()
        return self.net(basis).sum((1, 2))


def morse(places):
    """What the network should find: the energy of Morse's potential, and its forces."""
    places = places.detach().requires_grad_()
    energy = (1 - (-1.5 * (distances(places) - 1.2)).exp()).square().sum(1)
    (slope,) = torch.autograd.grad(energy.sum(), places)
    return energy.detach(), -slope


def clusters(count):
    """Corners of a cube, shaken."""
    corners = torch.cartesian_prod(*[torch.tensor([0.0, 1.3])] * 3).to(device)
    return corners + 0.15 * torch.randn(count, ATOMS, 3, device=device)


places = clusters(25_600)
energies, forces = morse(places)
energies -= energies.mean()
model = PairEnergy().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
for epoch in range(2):
    for chosen in torch.randperm(len(places), device=device).split(BATCH):
        x = places[chosen].requires_grad_()
        with torch.autocast(device, dtype=torch.bfloat16):
            energy = model(x).float()
        (slope,) = torch.autograd.grad(energy.sum(), x, create_graph=True)
        loss = nn.functional.mse_loss(energy, energies[chosen]) + 10 * nn.functional.mse_loss(-slope, forces[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
