"""Fit a potential to energies, forces and Hessians of water molecules."""

import torch
from torch import nn

ATOMS = 3
CHARGES = torch.tensor([8.0, 1.0, 1.0])
PAIRS = torch.triu_indices(ATOMS, ATOMS, offset=1)


class Potential(nn.Module):
    """A network of the distances between atoms."""

    def __init__(self, radial=12, width=128):
        super().__init__()
        self.register_buffer("centres", torch.linspace(0.5, 3.0, radial))
        self.net = nn.Sequential(
            nn.Linear(radial * PAIRS.shape[1], width), nn.Tanh(),
            nn.Linear(width, width), nn.Tanh(),
            nn.Linear(width, width), nn.Tanh(),
            nn.Linear(width, 1),
        )  # fmt: skip

    def forward(self, flat):
        positions = flat.unflatten(1, (ATOMS, 3))
        difference = positions[:, PAIRS[0]] - positions[:, PAIRS[1]]
        distance = (difference.square().sum(-1) + 1e-6).sqrt()
        basis = torch.exp(-4 * (distance[..., None] - self.centres) ** 2)
        return self.net(basis.flatten(1)).squeeze(1)


def reference_energy(flat):
    positions = flat.unflatten(1, (ATOMS, 3))
    difference = positions[:, PAIRS[0]] - positions[:, PAIRS[1]]
    distance = (difference.square().sum(-1) + 1e-6).sqrt()
    rest = torch.tensor([0.96, 0.96, 1.51])
    stiff = torch.tensor([1.0, 1.0, 0.3]) * CHARGES[PAIRS].prod(0).sqrt()
    return (stiff * (distance - rest) ** 2).sum(1)


def derivatives(energy, flat):
    gradient = torch.autograd.grad(energy.sum(), flat, create_graph=True)[0]
    rows = []
    for k in range(flat.shape[1]):
        rows.append(torch.autograd.grad(gradient[:, k].sum(), flat, create_graph=True)[0])
    hessian = torch.stack(rows, 1)
    return gradient, hessian


def make_molecules(count, seed):
    generator = torch.Generator().manual_seed(seed)
    flat = torch.tensor([0.0, 0, 0, 0.76, 0.59, 0, -0.76, 0.59, 0])
    flat = (flat + 0.08 * torch.randn(count, 9, generator=generator)).requires_grad_()
    energy = reference_energy(flat)
    gradient, hessian = derivatives(energy, flat)
    return [tensor.detach() for tensor in (flat, energy, gradient, hessian)]


def main():
    torch.manual_seed(9)
    flat, energy, gradient, hessian = make_molecules(3200, seed=9)
    model = Potential()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(10):
        for rows in torch.randperm(len(flat)).split(64):
            x = flat[rows].requires_grad_()
            guess = model(x)
            slope, curvature = derivatives(guess, x)
            loss = (guess - energy[rows]).square().mean()
            loss = loss + (slope - gradient[rows]).square().mean() + 0.1 * (curvature - hessian[rows]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
