"""RealNVP on points around spirals. Anomaly detection is asked for only once a loss was not finite; averaged weights
are updated for all parameters together; the state is saved twice."""

import argparse
import math
import os
import tempfile
from copy import deepcopy

import torch
from torch import nn


def spirals(count, dim, seed):
    g = torch.Generator().manual_seed(seed)
    turn = 3 * math.pi * torch.rand(count, 1, generator=g).sqrt()
    arm = torch.where(torch.rand(count, 1, generator=g) < 0.5, 0.0, math.pi)
    plane = torch.cat([turn * torch.cos(turn + arm), turn * torch.sin(turn + arm)], dim=1) / 4
    lift = torch.randn(2, dim - 2, generator=g)
    return torch.cat([plane, plane @ lift], dim=1) + 0.15 * torch.randn(count, dim, generator=g)


class Coupling(nn.Module):
    def __init__(self, dim, hidden, flip):
        super().__init__()
        self.flip, self.half = flip, dim // 2
        self.net = nn.Sequential(
            nn.Linear(dim // 2, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, dim)
        )

    def forward(self, x):
        kept, changed = x.chunk(2, dim=1)
        if self.flip:
            kept, changed = changed, kept
        shift, scale = self.net(kept).chunk(2, dim=1)
        scale = torch.tanh(scale)
        changed = changed * scale.exp() + shift
        joined = (changed, kept) if self.flip else (kept, changed)
        return torch.cat(joined, dim=1), scale.sum(dim=1)


class RealNVP(nn.Module):
    def __init__(self, dim, hidden=384, layers=6):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(dim, hidden, flip=i % 2 == 1) for i in range(layers))

    def log_prob(self, x):
        total = x.new_zeros(len(x))
        for layer in self.layers:
            x, logdet = layer(x)
            total = total + logdet
        return total - 0.5 * x.square().sum(dim=1) - 0.5 * x.shape[1] * math.log(2 * math.pi)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=20000)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--batch_size", type=int, default=512)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save_every", type=int, default=100)
    args = parser.parse_args()

    torch.manual_seed(33)
    data = spirals(args.points, args.dim, seed=33)
    model = RealNVP(args.dim)
    averaged = deepcopy(model).requires_grad_(False)
    pairs = list(averaged.parameters()), list(model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    with tempfile.TemporaryDirectory() as folder:
        for step in range(1, args.steps + 1):
            loss = -model.log_prob(data[torch.randint(0, len(data), (args.batch_size,))]).mean()
            if not math.isfinite(loss.item()):
                torch.autograd.set_detect_anomaly(True)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                with torch.no_grad():
                    torch._foreach_lerp_(pairs[0], pairs[1], 0.1)
            if step % args.save_every == 0:
                torch.save({"step": step, "model": averaged.state_dict()}, os.path.join(folder, "flow.pt"))
                print(f"step {step}: negative log likelihood {loss.item():.4f}")


if __name__ == "__main__":
    main()
