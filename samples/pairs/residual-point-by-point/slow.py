"""A physics-informed network for the heat equation u_t = 0.1 u_xx on the unit square."""

import math

import torch
from torch import nn

torch.manual_seed(0)


class Field(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )

    def forward(self, x, t):
        return self.net(torch.stack([x, t], -1)).squeeze(-1)


def residual(field, x, t):
    """u_t - 0.1 u_xx at points (x, t)."""
    rows = []
    for xi, ti in zip(x, t):
        xi, ti = xi.clone().requires_grad_(), ti.clone().requires_grad_()
        u = field(xi, ti)
        u_x, u_t = torch.autograd.grad(u, (xi, ti), create_graph=True)
        (u_xx,) = torch.autograd.grad(u_x, xi, create_graph=True)
        rows.append(u_t - 0.1 * u_xx)
    return torch.stack(rows)


field = Field()
optimizer = torch.optim.Adam(field.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 50, 0.5)

for step in range(120):
    x, t = torch.rand(2, 20)
    inside = residual(field, x, t).pow(2).mean()
    x = torch.rand(20)
    start = (field(x, torch.zeros(20)) - torch.sin(math.pi * x)).pow(2).mean()
    edges = field(torch.randint(0, 2, (20,)).float(), torch.rand(20)).pow(2).mean()
    loss = inside + 10 * start + edges
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step % 40 == 0:
        print(f"step {step}: residual {inside.item():.4f} start {start.item():.4f} edges {edges.item():.4f}")
