"""A picture as a function of its coordinates: a network of sines learns it from a few thousand pixels at a time."""

import math

import torch
from torch import nn


class Sine(nn.Module):
    def __init__(self, inner, outer, first=False, omega=30.0):
        super().__init__()
        self.linear, self.omega = nn.Linear(inner, outer), omega
        bound = 1 / inner if first else math.sqrt(6 / inner) / omega
        nn.init.uniform_(self.linear.weight, -bound, bound)

    def forward(self, x):
        return torch.sin(self.omega * self.linear(x))


class Siren(nn.Module):
    def __init__(self, width=96, depth=2):
        super().__init__()
        hidden = [Sine(width, width) for _ in range(depth)]
        self.net = nn.Sequential(Sine(2, width, first=True), *hidden, nn.Linear(width, 3))

    def forward(self, at):
        return self.net(at)


def painting(side=128):
    """Rings of colours: places (pixels, 2) and colours (pixels, 3)."""
    axis = torch.linspace(-1, 1, side)
    at = torch.cartesian_prod(axis, axis)
    far = at.norm(dim=1, keepdim=True)
    return at, 0.5 + 0.5 * torch.sin(torch.tensor([20.0, 25.0, 31.0]) * far + 3 * at[:, :1])


class Fit:
    """Draws pixels, and lets the optimizer ask for the loss."""

    def __init__(self, model, at, colour, lr=2e-4, pixels=2048):
        self.model, self.at, self.colour, self.pixels = model, at, colour, pixels
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr, fused=True)

    def step(self):
        rows = torch.randint(0, len(self.at), (self.pixels,), device=self.at.device)
        at, colour = self.at[rows], self.colour[rows]

        def closure():
            self.optimizer.zero_grad()
            loss = nn.functional.mse_loss(self.model(at), colour)
            loss.backward()
            return loss

        return self.optimizer.step(closure).detach()


def main(steps=250):
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    at, colour = (tensor.to(device) for tensor in painting())
    fit = Fit(Siren().to(device), at, colour)
    for step in range(1, steps + 1):
        loss = fit.step()
        if step % 50 == 0:
            print(f"{step:4d} of {steps}: {-10 * math.log10(loss.item()):.2f} dB")


if __name__ == "__main__":
    main()
