"""A surrogate of a simulator: a residual network from parameters to curves, in mixed precision."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        return x + self.ff(self.norm(x))


class Surrogate(nn.Module):
    def __init__(self, inputs=6, points=64, dim=192, depth=4):
        super().__init__()
        self.stem = nn.Linear(inputs, dim)
        self.blocks = nn.Sequential(*[Block(dim) for _ in range(depth)])
        self.head = nn.Linear(dim, points)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)))


def simulate(parameters, points=64):
    t = torch.linspace(0, 1, points)
    a, f, d, p, o, s = (column[:, None] for column in parameters.unbind(dim=1))
    return (1 + a) * torch.sin(6 * (1 + f) * t + p) * torch.exp(-(1 + d) * t) + o + s * t


def main():
    torch.manual_seed(170)
    parameters = torch.rand(16384, 6)
    curves = simulate(parameters)
    model = Surrogate()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for step in range(1, 91):
        rows = torch.randint(len(parameters), (96,))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(model(parameters[rows]).float(), curves[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 0:
            print(f"step {step}: {loss.item():.5f}")


if __name__ == "__main__":
    main()
