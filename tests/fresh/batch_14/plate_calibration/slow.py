"""Calibrates a surrogate of a loaded plate to sensor readings whose errors are correlated in space."""

import argparse

import torch
import torch.nn as nn
from torch.distributions import MultivariateNormal, Normal, kl_divergence


class SensorGrid:
    """Sensors on the plate and the covariance of what they get wrong."""

    def __init__(self, side, length_scale=0.15, noise=0.05):
        axis = torch.linspace(0, 1, side)
        self.places = torch.cartesian_prod(axis, axis)
        distance = torch.cdist(self.places, self.places)
        smooth = torch.exp(-0.5 * (distance / length_scale) ** 2)
        self.covariance = 0.02 * smooth + noise**2 * torch.eye(len(self.places))

    def __len__(self):
        return len(self.places)


def deflection(places, load):
    """The first modes of a simply supported plate under a load of four parameters."""
    x, y = places[:, 0], places[:, 1]
    modes = [torch.sin(torch.pi * a * x) * torch.sin(torch.pi * b * y) for a, b in ((1, 1), (2, 1), (1, 2), (2, 2))]
    return torch.tanh(load) @ torch.stack(modes)


def make_readings(grid, count, seed):
    generator = torch.Generator().manual_seed(seed)
    loads = torch.randn(count, 4, generator=generator)
    root = torch.linalg.cholesky(grid.covariance)
    errors = torch.randn(count, len(grid), generator=generator) @ root.t()
    return loads, deflection(grid.places, loads) + errors


class Encoder(nn.Module):
    def __init__(self, sensors, hidden, latent):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(sensors, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU())
        self.mean = nn.Linear(hidden, latent)
        self.log_scale = nn.Linear(hidden, latent)

    def forward(self, readings):
        hidden = self.layers(readings)
        return Normal(self.mean(hidden), self.log_scale(hidden).clamp(-5, 2).exp())


class PlateModel(nn.Module):
    def __init__(self, grid, hidden=128, latent=4):
        super().__init__()
        self.encoder = Encoder(len(grid), hidden, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.SiLU(), nn.Linear(hidden, len(grid)))
        self.register_buffer("covariance", grid.covariance)

    def likelihood(self, mean):
        return MultivariateNormal(mean, covariance_matrix=self.covariance)

    def forward(self, readings, beta):
        posterior = self.encoder(readings)
        latent = posterior.rsample()
        fit = self.likelihood(self.decoder(latent)).log_prob(readings).mean()
        prior = Normal(torch.zeros_like(latent), torch.ones_like(latent))
        return beta * kl_divergence(posterior, prior).sum(dim=1).mean() - fit


def held_out_error(model, grid, loads, readings):
    model.eval()
    with torch.no_grad():
        mean = model.decoder(model.encoder(readings).mean)
        error = (mean - deflection(grid.places, loads)).pow(2).mean().sqrt().item()
    model.train()
    return error


def calibrate(args):
    torch.manual_seed(args.seed)
    grid = SensorGrid(args.side)
    loads, readings = make_readings(grid, args.readings, args.seed)
    cut = int(0.9 * args.readings)
    model = PlateModel(grid)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    for epoch in range(args.epochs):
        beta = min(1.0, (epoch + 1) / 2)
        losses = []
        for index in torch.randperm(cut).split(args.batch_size):
            loss = model(readings[index], beta)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 50.0)
            optimizer.step()
            losses.append(loss.item())
        schedule.step()
        error = held_out_error(model, grid, loads[cut:], readings[cut:])
        print(f"epoch {epoch}: negative ELBO {sum(losses) / len(losses):.2f}, error {error:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=17)
    parser.add_argument("--readings", type=int, default=4000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=10)
    calibrate(parser.parse_args())
