"""A normalising flow that learns to sample a scalar field on a lattice: only the action is known, no samples."""

import math
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Config:
    side: int = 8
    mass: float = -1.0
    coupling: float = 2.0
    layers: int = 8
    hidden: int = 128
    batch: int = 512
    lr: float = 1e-3
    eras: int = 6
    steps: int = 40


class ScalarField:
    """Action of phi^4 theory with periodic borders."""

    def __init__(self, config):
        self.side, self.mass, self.coupling = config.side, config.mass, config.coupling

    def action(self, flat):
        phi = flat.view(-1, self.side, self.side)
        potential = self.mass * phi.square() + self.coupling * phi.pow(4)
        kinetic = sum(2 * phi.square() - 2 * phi * phi.roll(1, dim) for dim in (1, 2))
        return (potential + kinetic).sum(dim=(1, 2))


class AffineCoupling(nn.Module):
    def __init__(self, mask, hidden):
        super().__init__()
        self.register_buffer("mask", mask)
        size = len(mask)
        self.net = nn.Sequential(
            nn.Linear(size, hidden),
            nn.LeakyReLU(),
            nn.Linear(hidden, hidden),
            nn.LeakyReLU(),
            nn.Linear(hidden, 2 * size),
        )
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def parameters_of(self, frozen):
        s, t = self.net(frozen).chunk(2, dim=-1)
        return torch.tanh(s) * (1 - self.mask), t * (1 - self.mask)

    def forward(self, z):
        frozen = z * self.mask
        s, t = self.parameters_of(frozen)
        return frozen + (1 - self.mask) * (z * s.exp() + t), s.sum(dim=-1)

    def inverse(self, x):
        frozen = x * self.mask
        s, t = self.parameters_of(frozen)
        return frozen + (1 - self.mask) * (x - t) * (-s).exp(), -s.sum(dim=-1)


class Flow(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.size = config.side**2
        row = torch.arange(config.side)
        checker = ((row[:, None] + row) % 2).float().flatten()
        masks = [checker if i % 2 else 1 - checker for i in range(config.layers)]
        self.couplings = nn.ModuleList(AffineCoupling(mask, config.hidden) for mask in masks)

    def prior_log_prob(self, z):
        return -0.5 * z.square().sum(dim=-1) - 0.5 * self.size * math.log(2 * math.pi)

    def rsample(self, n):
        x = torch.randn(n, self.size)
        for coupling in self.couplings:
            x, _ = coupling(x)
        return x

    def log_prob(self, x):
        total = 0.0
        for coupling in reversed(self.couplings):
            x, log_det = coupling.inverse(x)
            total = total + log_det
        return self.prior_log_prob(x) + total


def effective_sample_size(log_p, log_q):
    log_w = log_p - log_q
    return (2 * log_w.logsumexp(0) - (2 * log_w).logsumexp(0)).exp() / len(log_w)


def train(config):
    torch.manual_seed(450)
    theory, flow = ScalarField(config), Flow(config)
    optimizer = torch.optim.Adam(flow.parameters(), lr=config.lr, fused=True)
    for era in range(config.eras):
        history = []
        for _ in range(config.steps):
            x = flow.rsample(config.batch)
            log_q = flow.log_prob(x)
            log_p = -theory.action(x)
            loss = (log_q - log_p).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(flow.parameters(), 10.0)
            optimizer.step()
            history.append(torch.stack([loss.detach(), effective_sample_size(log_p.detach(), log_q.detach())]))
        loss, size = torch.stack(history).mean(dim=0).tolist()
        print(f"era {era}: KL {loss:.3f}, effective sample size {size:.4f}")


if __name__ == "__main__":
    train(Config())
