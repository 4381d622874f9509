"""A network that solves the damped wave equation of a square membrane from its equation alone."""

import math
from itertools import pairwise

import torch
from torch import nn

DAMPING, SPEED = 0.3, 1.0


class SolutionNet(nn.Module):
    def __init__(self, width=96, depth=4):
        super().__init__()
        sizes = [3, *[width] * depth, 1]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        for layer in self.layers:
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x, y, t):
        hidden = torch.cat((2 * x - 1, 2 * y - 1, 2 * t - 1), dim=1)
        for layer in self.layers[:-1]:
            hidden = torch.tanh(layer(hidden))
        # zero at the rim by construction
        return self.layers[-1](hidden) * x * (1 - x) * y * (1 - y) * 16


def gradient(outputs, inputs):
    """Of each row's output with respect to the row's own inputs; these gradients can be differentiated again."""
    return torch.autograd.grad(outputs, inputs, torch.ones_like(outputs), create_graph=True)


class Collocation:
    def __init__(self, interior, initial, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.interior, self.initial = interior, initial

    def sample(self):
        """Points inside the domain, and points at time zero."""
        inside = torch.rand(self.interior, 3, generator=self.generator)
        start = torch.rand(self.initial, 3, generator=self.generator)
        start[:, 2] = 0
        return inside, start


class MembranePINN:
    def __init__(self, net, lr):
        self.net = net
        self.optimizer = torch.optim.Adam(net.parameters(), lr=lr, fused=True)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.999)

    def residual(self, points):
        x, y, t = (column.requires_grad_() for column in points.split(1, dim=1))
        u = self.net(x, y, t)
        u_x = gradient(u, x)[0]
        u_y = gradient(u, y)[0]
        u_t = gradient(u, t)[0]
        u_xx = gradient(u_x, x)[0]
        u_yy = gradient(u_y, y)[0]
        u_tt = gradient(u_t, t)[0]
        return u_tt + DAMPING * u_t - SPEED**2 * (u_xx + u_yy)

    def initial_errors(self, points):
        x, y, t = (column.requires_grad_() for column in points.split(1, dim=1))
        u = self.net(x, y, t)
        (u_t,) = gradient(u, t)
        shape = torch.sin(math.pi * x) * torch.sin(2 * math.pi * y)
        return u - shape.detach(), u_t

    def losses(self, inside, start):
        displacement, velocity = self.initial_errors(start)
        return {
            "equation": self.residual(inside).square().mean(),
            "displacement": 100 * displacement.square().mean(),
            "velocity": 10 * velocity.square().mean(),
        }

    def train(self, collocation, iterations, report_every):
        for iteration in range(iterations):
            losses = self.losses(*collocation.sample())
            loss = sum(losses.values())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            if iteration % report_every == 0:
                parts = " ".join(f"{name} {value.item():.4f}" for name, value in losses.items())
                print(f"iteration {iteration}: {parts}")


if __name__ == "__main__":
    torch.manual_seed(163)
    MembranePINN(SolutionNet(), lr=2e-3).train(Collocation(640, 128, seed=164), iterations=220, report_every=50)
