"""Scaling and merging of intensities: a variational model with a callback-driven fit loop."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence


def parser():
    p = argparse.ArgumentParser()
    p.add_argument("--reflections", type=int, default=4000)
    p.add_argument("--observations", type=int, default=24_000)
    p.add_argument("--iterations", type=int, default=360)
    p.add_argument("--batch", type=int, default=6000)
    p.add_argument("--test-fraction", type=float, default=0.15)
    p.add_argument("--validation-frequency", type=int, default=1)
    p.add_argument("--seed", type=int, default=1234)
    return p


def simulate(args):
    rng = np.random.default_rng(args.seed)
    amplitude = rng.gamma(2.0, 1.0, args.reflections)
    hkl = rng.integers(0, args.reflections, args.observations)
    meta = rng.standard_normal((args.observations, 12)).astype(np.float32)
    scale = np.exp(0.3 * np.tanh(meta @ rng.standard_normal(12)))
    signal = scale * amplitude[hkl] ** 2
    sigma = 0.1 * signal + 0.05
    observed = (signal + sigma * rng.standard_normal(len(signal))).astype(np.float32)
    return tuple(map(torch.from_numpy, (hkl, meta, observed, sigma.astype(np.float32))))


class MergingModel(nn.Module):
    def __init__(self, reflections, meta, width=64, depth=4):
        super().__init__()
        self.loc = nn.Parameter(torch.ones(reflections))
        self.raw_scale = nn.Parameter(torch.full((reflections,), -2.0))
        layers, last = [], meta
        for _ in range(depth):
            layers += [nn.Linear(last, width), nn.LeakyReLU(0.01)]
            last = width
        self.scaler = nn.Sequential(*layers, nn.Linear(width, 1))

    def surrogate(self):
        return Normal(self.loc, nn.functional.softplus(self.raw_scale))

    def forward(self, hkl, meta):
        q = self.surrogate()
        return torch.exp(self.scaler(meta).squeeze(1)) * q.rsample()[hkl] ** 2, q

    def negative_elbo(self, hkl, meta, observed, sigma):
        predicted, q = self(hkl, meta)
        nll = -Normal(predicted, sigma).log_prob(observed).mean()
        return nll + kl_divergence(q, Normal(1.0, 1.0)).mean()


class History(dict):
    def log(self, **values):
        for key, value in values.items():
            self.setdefault(key, []).append(value)


class Fitter:
    def __init__(self, model, train, test, args, out):
        self.model, self.train_data, self.test_data = model, train, test
        self.validation_frequency = args.validation_frequency
        self.args, self.out = args, out
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.99))
        self.history = History()

    def validate(self, samples=4):
        self.model.eval()
        with torch.no_grad():
            losses = [self.model.negative_elbo(*self.test_data).item() for _ in range(samples)]
        self.model.train()
        return float(np.mean(losses))

    def fit(self):
        for step in range(1, self.args.iterations + 1):
            pick = torch.randint(0, len(self.train_data[0]), (self.args.batch,))
            loss = self.model.negative_elbo(*(part[pick] for part in self.train_data))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.history.log(loss=loss.item())
            if step % self.validation_frequency == 0:
                self.history.log(val_loss=self.validate())
            if step % 60 == 0:
                print(f"iter {step}: loss {loss.item():.4f}, val {self.history['val_loss'][-1]:.4f}")
        torch.save(self.model.state_dict(), self.out / "merged.pt")


def main():
    args = parser().parse_args()
    torch.manual_seed(args.seed)
    data = simulate(args)
    cut = int(len(data[0]) * (1 - args.test_fraction))
    train, test = [part[:cut] for part in data], [part[cut:] for part in data]
    with tempfile.TemporaryDirectory() as out:
        Fitter(MergingModel(args.reflections, 12), train, test, args, Path(out)).fit()


if __name__ == "__main__":
    main()
