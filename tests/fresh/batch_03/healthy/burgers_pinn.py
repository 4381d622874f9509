"""A physics-informed network for Burgers' equation: one forward pass per set of points, two derivatives."""

import math

import torch
from torch import nn

VISCOSITY = 0.01 / math.pi


class Net(nn.Module):
    def __init__(self, width=64, depth=4):
        super().__init__()
        layers, inp = [], 2
        for _ in range(depth):
            layers += [nn.Linear(inp, width), nn.Tanh()]
            inp = width
        self.layers = nn.Sequential(*layers, nn.Linear(inp, 1))

    def forward(self, tx):
        return self.layers(tx)


def residual(net, tx):
    u = net(tx)
    first = torch.autograd.grad(u.sum(), tx, create_graph=True)[0]
    u_t, u_x = first[:, :1], first[:, 1:]
    u_xx = torch.autograd.grad(u_x.sum(), tx, create_graph=True)[0][:, 1:]
    return u_t + u * u_x - VISCOSITY * u_xx


def known_values(count):
    """Start: a sine. At both ends: zero."""
    x = torch.rand(count, 1) * 2 - 1
    start = torch.cat([torch.zeros_like(x), x], dim=1), -torch.sin(math.pi * x)
    ends = torch.cat([torch.rand(count, 1), torch.randint(0, 2, (count, 1)) * 2.0 - 1], dim=1), torch.zeros(count, 1)
    return torch.cat([start[0], ends[0]]), torch.cat([start[1], ends[1]])


def main():
    torch.manual_seed(3)
    net = Net()
    points, values = known_values(128)
    inner = torch.rand(8192, 2) * torch.tensor([1.0, 2.0]) - torch.tensor([0.0, 1.0])
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 480)
    for step in range(480):
        tx = inner[torch.randint(len(inner), (1024,))].requires_grad_()
        data_loss = (net(points) - values).square().mean()
        physics_loss = residual(net, tx).square().mean()
        optimizer.zero_grad()
        (data_loss + physics_loss).backward()
        optimizer.step()
        scheduler.step()
        if step % 80 == 79:
            print(f"{step + 1}: data {data_loss.item():.5f} physics {physics_loss.item():.5f}")


main()
