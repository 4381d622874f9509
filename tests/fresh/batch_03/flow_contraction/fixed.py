"""A vector field that is to follow a flow and contract: the loss holds the Jacobian of the network at each point."""

import torch
from torch import nn
from torch.autograd.functional import jacobian


class Field(nn.Module):
    def __init__(self, dim=3, hidden=128):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, dim)
        )

    def forward(self, x):
        return self.net(x)


def batch_jacobian(field, x):
    """One matrix for each point: (batch, out, in)."""
    return jacobian(lambda points: field(points).sum(dim=0), x, create_graph=True).transpose(0, 1)


def contraction_loss(matrices, rate):
    """How far the symmetric part is from being below -rate."""
    symmetric = (matrices + matrices.transpose(1, 2)) / 2
    eye = torch.eye(matrices.size(-1))
    return torch.relu(symmetric + rate * eye).square().sum(dim=(1, 2)).mean()


def spiral(points):
    x, y, z = points.unbind(dim=1)
    return torch.stack([-0.5 * x - y, x - 0.5 * y, -z + 0.2 * torch.sin(x)], dim=1)


class Experiment:
    def __init__(self, steps, batch):
        self.steps, self.batch = steps, batch
        self.field = Field()
        self.optimizer = torch.optim.Adam(self.field.parameters(), lr=3e-3)
        self.points = torch.randn(8192, 3, generator=torch.Generator().manual_seed(5))
        self.flow = spiral(self.points)

    def step(self):
        rows = torch.randint(len(self.points), (self.batch,))
        x = self.points[rows]
        fit = (self.field(x) - self.flow[rows]).square().mean()
        shrink = contraction_loss(batch_jacobian(self.field, x), rate=0.3)
        loss = fit + 0.05 * shrink
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return fit.item(), shrink.item()

    def run(self):
        for step in range(self.steps):
            fit, shrink = self.step()
            if (step + 1) % 20 == 0:
                print(f"{step + 1:4d} fit {fit:.5f} contraction {shrink:.5f}")


torch.manual_seed(2)
Experiment(steps=80, batch=48).run()
