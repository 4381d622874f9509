"""Kolmogorov-Arnold network on the yield strength of alloys: a spline per edge, and a symbolic function if set."""

import argparse
import logging
import math
import tempfile
from pathlib import Path

import torch
from torch import nn

log = logging.getLogger("alloy_kan")

SYMBOLS = {
    "0": lambda x: x * 0.0,
    "x": lambda x: x,
    "sin": torch.sin,
    "exp": torch.exp,
    "x^2": torch.square,
}


def alloys(rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Fractions of six elements, and a strength with a few interactions."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(rows, 6, generator=generator) * 2 - 1
    strength = torch.sin(math.pi * x[:, 0]) + x[:, 1].square() * x[:, 2] + torch.exp(-x[:, 3].abs()) * x[:, 4]
    strength = strength + 0.05 * torch.randn(rows, generator=generator)
    return x, strength[:, None]


class SplineLayer(nn.Module):
    """All edges of a layer as cubic B-splines on one grid, beside a SiLU branch."""

    def __init__(self, n_in, n_out, grid=6, order=3):
        super().__init__()
        self.order = order
        step = 2.0 / grid
        knots = torch.arange(-order, grid + order + 1) * step - 1.0
        self.register_buffer("knots", knots)
        self.coefficients = nn.Parameter(torch.randn(n_out, n_in, grid + order) * 0.1)
        self.base = nn.Linear(n_in, n_out, bias=False)

    def basis(self, x):
        x = x.unsqueeze(-1)
        knots = self.knots
        b = ((x >= knots[:-1]) & (x < knots[1:])).to(x.dtype)
        for k in range(1, self.order + 1):
            left = (x - knots[: -(k + 1)]) / (knots[k:-1] - knots[: -(k + 1)])
            right = (knots[k + 1 :] - x) / (knots[k + 1 :] - knots[1:-k])
            b = left * b[..., :-1] + right * b[..., 1:]
        return b

    def forward(self, x):
        spline = self.basis(x).flatten(1) @ self.coefficients.flatten(1).t()
        return spline + self.base(nn.functional.silu(x))


class SymbolicLayer(nn.Module):
    """Edges that were fixed to a named function: a * f(b x + c) + d."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.names = [["0"] * n_in for _ in range(n_out)]
        self.affine = nn.Parameter(torch.tensor([1.0, 0.0, 1.0, 0.0]).repeat(n_out, n_in, 1))
        self.register_buffer("mask", torch.zeros(n_out, n_in))

    def fix(self, out, inp, name):
        self.names[out][inp] = name
        self.mask[out, inp] = 1.0

    def forward(self, x):
        columns = []
        for j, row in enumerate(self.names):
            total = 0.0
            for i, name in enumerate(row):
                a, b, c, d = self.affine[j, i]
                total = total + self.mask[j, i] * (c * SYMBOLS[name](a * x[:, i] + b) + d)
            columns.append(total)
        return torch.stack(columns, dim=1)


class KAN(nn.Module):
    def __init__(self, widths, grid=6, symbolic_enabled=False):
        super().__init__()
        shapes = list(zip(widths[:-1], widths[1:]))
        self.splines = nn.ModuleList(SplineLayer(a, b, grid) for a, b in shapes)
        self.symbols = nn.ModuleList(SymbolicLayer(a, b) for a, b in shapes)
        self.symbolic_enabled = symbolic_enabled

    def forward(self, x):
        for spline, symbolic in zip(self.splines, self.symbols):
            y = spline(x)
            if self.symbolic_enabled:
                y = y + symbolic(x)
            x = y
        return x


class Fitter:
    def __init__(self, args):
        self.args = args
        self.train_x, self.train_y = alloys(args.rows, seed=3)
        self.test_x, self.test_y = alloys(1_000, seed=4)
        self.model = KAN([6, 6, 3, 1], grid=args.grid)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, args.steps)
        self.best = math.inf

    def batches(self):
        while True:
            for rows in torch.randperm(len(self.train_x)).split(self.args.batch):
                yield self.train_x[rows], self.train_y[rows]

    @torch.no_grad()
    def test_rmse(self):
        self.model.eval()
        error = self.model(self.test_x) - self.test_y
        self.model.train()
        return error.square().mean().sqrt().item()

    def fit(self, folder):
        for step, (x, y) in zip(range(self.args.steps), self.batches()):
            loss = nn.functional.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            if (step + 1) % 50 == 0:
                rmse = self.test_rmse()
                log.info("step %d: loss %.4f, test rmse %.4f", step + 1, loss.item(), rmse)
                if rmse < self.best:
                    self.best = rmse
                    torch.save(self.model.state_dict(), folder / "best.pt")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=1_000)
    parser.add_argument("--grid", type=int, default=6)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        Fitter(args).fit(Path(folder))


if __name__ == "__main__":
    main()
