"""Exact Gaussian process regression: hyperparameters by gradient ascent on the marginal likelihood."""

import math

import torch
from torch import nn


class RBFKernel(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.log_lengthscale = nn.Parameter(torch.zeros(dims))
        self.log_outputscale = nn.Parameter(torch.zeros(()))

    def forward(self, a, b):
        scale = self.log_lengthscale.exp()
        a, b = a / scale, b / scale
        square = a.square().sum(1)[:, None] + b.square().sum(1) - 2 * a @ b.t()
        return self.log_outputscale.exp() * torch.exp(-0.5 * square.clamp(min=0))


class ExactGP(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.kernel = RBFKernel(dims)
        self.log_noise = nn.Parameter(torch.tensor(-1.0))
        self.mean = nn.Parameter(torch.zeros(()))

    def neg_log_marginal(self, x, y):
        n = len(x)
        K = self.kernel(x, x) + (self.log_noise.exp() + 1e-4) * torch.eye(n, dtype=x.dtype)
        residual = y - self.mean
        L = torch.linalg.cholesky(K)
        fit = torch.linalg.solve_triangular(L, residual[:, None], upper=False).square().sum()
        complexity = 2 * L.diagonal().log().sum()
        return 0.5 * (fit + complexity + n * math.log(2 * math.pi)) / n


def make_data(n, dims=4):
    generator = torch.Generator().manual_seed(50)
    x = torch.rand(n, dims, generator=generator, dtype=torch.double) * 4 - 2
    y = torch.sin(2 * x[:, 0]) + 0.5 * x[:, 1] ** 2 - x[:, 2]
    return x, y + 0.2 * torch.randn(n, generator=generator, dtype=torch.double)


def train(n=520, iterations=90, lr=0.08):
    x, y = make_data(n)
    model = ExactGP(x.size(1)).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for iteration in range(1, iterations + 1):
        optimizer.zero_grad()
        loss = model.neg_log_marginal(x, y)
        loss.backward()
        optimizer.step()
        if iteration % 15 == 0:
            scales = ", ".join(f"{s:.2f}" for s in model.kernel.log_lengthscale.exp().tolist())
            print(f"Iter {iteration}/{iterations} loss {loss.item():.5f} lengthscales {scales}")
    return model


if __name__ == "__main__":
    train()
