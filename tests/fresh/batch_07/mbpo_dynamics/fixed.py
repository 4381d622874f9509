"""An ensemble of probabilistic dynamics models on transitions of a two-link arm."""

import random
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn


@dataclass
class EnsembleConfig:
    members: int = 7
    hidden: int = 200
    depth: int = 3
    batch_size: int = 256
    transitions: int = 36000
    epochs: int = 4
    holdout: float = 0.1
    lr: float = 1e-3


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def arm_transitions(count, seed):
    """(state, action) and the change of state, with noise that grows with speed."""
    rng = np.random.default_rng(seed)
    angles, speeds = rng.uniform(-np.pi, np.pi, (count, 2)), rng.normal(0, 2, (count, 2))
    torques = rng.uniform(-1, 1, (count, 2))
    pull = 9.8 * np.sin(np.cumsum(angles, axis=1))
    accelerations = 5 * torques - pull - 0.1 * speeds + 0.2 * np.abs(speeds) * rng.normal(size=(count, 2))
    inputs = np.concatenate([np.sin(angles), np.cos(angles), speeds, torques], axis=1)
    targets = np.concatenate([0.05 * speeds, 0.05 * accelerations], axis=1)
    return inputs.astype(np.float32), targets.astype(np.float32)


class StandardScaler:
    def fit(self, data):
        self.mean, self.std = data.mean(0, keepdims=True), data.std(0, keepdims=True) + 1e-6

    def transform(self, data):
        return (data - self.mean) / self.std


class EnsembleLinear(nn.Module):
    def __init__(self, members, inputs, outputs, weight_decay):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(members, inputs, outputs) / (2 * inputs**0.5))
        self.bias = nn.Parameter(torch.zeros(members, 1, outputs))
        self.weight_decay = weight_decay

    def forward(self, x):
        return torch.baddbmm(self.bias, x, self.weight)


class EnsembleModel(nn.Module):
    def __init__(self, inputs, outputs, config):
        super().__init__()
        sizes = [inputs] + [config.hidden] * config.depth
        decays = [2.5e-5, 5e-5, 7.5e-5, 7.5e-5]
        self.hidden = nn.ModuleList(
            EnsembleLinear(config.members, a, b, d) for a, b, d in zip(sizes, sizes[1:], decays)
        )
        self.out = EnsembleLinear(config.members, config.hidden, 2 * outputs, 1e-4)
        self.max_logvar = nn.Parameter(torch.full((outputs,), 0.5))
        self.min_logvar = nn.Parameter(torch.full((outputs,), -10.0))

    def forward(self, x):
        for layer in self.hidden:
            x = nn.functional.silu(layer(x))
        mean, logvar = self.out(x).chunk(2, dim=-1)
        logvar = self.max_logvar - nn.functional.softplus(self.max_logvar - logvar)
        logvar = self.min_logvar + nn.functional.softplus(logvar - self.min_logvar)
        return mean, logvar

    def decay_loss(self):
        return sum(0.5 * layer.weight_decay * layer.weight.pow(2).sum() for layer in [*self.hidden, self.out])

    def loss(self, mean, logvar, target):
        nll = ((mean - target).pow(2) * torch.exp(-logvar) + logvar).mean((1, 2)).sum()
        return nll + 0.01 * (self.max_logvar.sum() - self.min_logvar.sum()) + self.decay_loss()


class EnsembleDynamics:
    def __init__(self, config, inputs, outputs):
        self.config = config
        self.model = EnsembleModel(inputs, outputs, config)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config.lr)
        self.scaler = StandardScaler()

    @torch.no_grad()
    def holdout_errors(self, inputs, targets):
        mean, _ = self.model(inputs.expand(self.config.members, -1, -1))
        return (mean - targets).pow(2).mean((1, 2))

    def train(self, inputs, targets):
        split = int(len(inputs) * (1 - self.config.holdout))
        self.scaler.fit(inputs[:split])
        inputs, targets = torch.from_numpy(self.scaler.transform(inputs)), torch.from_numpy(targets)
        for epoch in range(self.config.epochs):
            orders = torch.stack([torch.randperm(split) for _ in range(self.config.members)])
            for rows in orders.split(self.config.batch_size, dim=1):
                mean, logvar = self.model(inputs[rows])
                loss = self.model.loss(mean, logvar, targets[rows])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            errors = self.holdout_errors(inputs[split:], targets[split:])
            print(f"epoch {epoch}: loss {loss.item():.4f} holdout " + " ".join(f"{e:.5f}" for e in errors.tolist()))


def main():
    set_seed(42)
    config = EnsembleConfig()
    inputs, targets = arm_transitions(config.transitions, seed=42)
    EnsembleDynamics(config, inputs.shape[1], targets.shape[1]).train(inputs, targets)


if __name__ == "__main__":
    main()
