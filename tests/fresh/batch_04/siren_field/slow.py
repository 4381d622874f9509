"""A field between few sensors, represented by a network of sines; the best weights of all iterations are kept."""

import copy
import math
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Config:
    sensors: int = 192
    width: int = 512
    depth: int = 3
    omega: float = 15.0
    smoothness: float = 1e-4
    lr: float = 3e-5
    iterations: int = 220
    show: int = 44


class Sine(nn.Module):
    def __init__(self, inp, out, omega, first=False):
        super().__init__()
        self.omega = omega
        self.linear = nn.Linear(inp, out)
        bound = 1 / inp if first else math.sqrt(6 / inp) / omega
        nn.init.uniform_(self.linear.weight, -bound, bound)

    def forward(self, x):
        return torch.sin(self.omega * self.linear(x))


class Siren(nn.Module):
    def __init__(self, config):
        super().__init__()
        layers = [Sine(3, config.width, config.omega, first=True)]
        layers += [Sine(config.width, config.width, config.omega) for _ in range(config.depth)]
        self.net = nn.Sequential(*layers, nn.Linear(config.width, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


class Sensors:
    """Readings of a sum of plane waves at random places and times."""

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.places = 2 * torch.rand(count, 3, generator=generator) - 1
        waves = 4 * torch.randn(6, 3, generator=generator)
        strength = torch.rand(6, generator=generator)
        self.readings = (torch.sin(self.places @ waves.T) * strength).sum(dim=1)


class BestWeights:
    """Remembers the state with the lowest loss, to go on from there."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        self.loss, self.iteration, self.state = float("inf"), 0, None

    def offer(self, iteration, loss):
        if loss < self.loss:
            self.loss, self.iteration = loss, iteration
            state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
            self.state = copy.deepcopy(state)

    def restore(self):
        self.model.load_state_dict(self.state["model"])
        self.optimizer.load_state_dict(self.state["optimizer"])


def objective(model, sensors, config):
    error = (model(sensors.places) - sensors.readings).square().mean()
    roughness = sum(layer.linear.weight.square().mean() for layer in model.net[1:-1])
    return error + config.smoothness * roughness


def fit(config):
    torch.manual_seed(480)
    sensors, model = Sensors(config.sensors, 481), Siren(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr, fused=True)
    best = BestWeights(model, optimizer)
    for iteration in range(1, config.iterations + 1):
        optimizer.zero_grad()
        loss = objective(model, sensors, config)
        loss.backward()
        optimizer.step()
        best.offer(iteration, loss.item())
        if iteration % config.show == 0:
            print(f"iteration {iteration}: loss {loss.item():.5f}, best {best.loss:.5f} at {best.iteration}")
    best.restore()
    return model


def report(model, config):
    held_out = Sensors(config.sensors, 482)
    with torch.no_grad():
        values = model(held_out.places)
    print(f"range of the field elsewhere: {values.min().item():.3f} to {values.max().item():.3f}")


if __name__ == "__main__":
    settings = Config()
    report(fit(settings), settings)
