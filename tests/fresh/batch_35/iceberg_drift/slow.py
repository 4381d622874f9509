"""Where an iceberg drifts in the coming three days, with the full covariance of all its positions."""

from __future__ import annotations

import math
import os
import tempfile
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import MultivariateNormal
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class DriftConfig:
    icebergs: int = 9000
    past: int = 12
    future: int = 12
    hidden: int = 96
    batch_size: int = 128
    epochs: int = 7
    lr: float = 1e-3
    clip: float = 10.0
    seed: int = 1912

    @property
    def targets(self) -> int:
        return 2 * self.future


def drift(config: DriftConfig) -> TensorDataset:
    """Steps in a current that turns with the tide, pushed by wind that changes slowly."""
    generator = torch.Generator().manual_seed(config.seed)
    steps = config.past + config.future
    hours = 6 * torch.arange(steps)
    current = 0.3 * torch.randn(config.icebergs, 1, 2, generator=generator)
    angle = 2 * math.pi * (hours / 12.4 + torch.rand(config.icebergs, 1, generator=generator))
    tide = 0.4 * torch.stack([angle.cos(), angle.sin()], dim=-1)
    wind = torch.zeros(config.icebergs, 2)
    pushed = []
    for _ in range(steps):
        wind = 0.9 * wind + 0.3 * torch.randn(config.icebergs, 2, generator=generator)
        pushed.append(wind)
    wind = torch.stack(pushed, dim=1)
    size = 0.3 + torch.rand(config.icebergs, 1, 1, generator=generator)
    moves = current + tide + wind / size * 0.3 + 0.05 * torch.randn(config.icebergs, steps, 2, generator=generator)
    places = moves.cumsum(1)
    places = places - places[:, config.past - 1 : config.past]
    inputs = torch.cat([places, moves, wind, size.expand(-1, steps, -1)], dim=-1)[:, : config.past]
    return TensorDataset(inputs, places[:, config.past :].flatten(1))


class DriftNetwork(nn.Module):
    """A GRU over the past; its last state gives the mean of all targets and a lower triangle."""

    def __init__(self, inputs: int, hidden: int, targets: int):
        super().__init__()
        self.targets = targets
        self.memory = nn.GRU(inputs, hidden, batch_first=True)
        self.mix = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU())
        self.mean = nn.Linear(hidden, targets)
        self.triangle = nn.Linear(hidden, targets * (targets + 1) // 2)
        rows, columns = torch.tril_indices(targets, targets)
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)

    def lower(self, state: torch.Tensor) -> torch.Tensor:
        entries = 0.1 * self.triangle(state)
        matrix = entries.new_zeros(len(state), self.targets, self.targets)
        matrix[:, self.rows, self.columns] = entries
        diagonal = F.softplus(matrix.diagonal(dim1=1, dim2=2)) + 0.05
        return matrix.tril(-1) + torch.diag_embed(diagonal)

    def forward(self, past: torch.Tensor) -> MultivariateNormal:
        _, last = self.memory(past)
        state = self.mix(last[-1])
        lower = self.lower(state)
        return MultivariateNormal(self.mean(state), covariance_matrix=lower @ lower.mT, validate_args=False)


@torch.no_grad()
def evaluate(network: DriftNetwork, loader: DataLoader) -> tuple[float, float]:
    """Negative log-likelihood and the mean distance at the last step."""
    network.eval()
    likelihood, distance, count = 0.0, 0.0, 0
    for past, targets in loader:
        forecast = network(past)
        likelihood += forecast.log_prob(targets).sum().item()
        distance += (forecast.mean - targets)[:, -2:].norm(dim=1).sum().item()
        count += len(past)
    return -likelihood / count, distance / count


def fit(
    network: DriftNetwork, train_loader: DataLoader, test_loader: DataLoader, config: DriftConfig, path: str
) -> None:
    optimizer = torch.optim.Adam(network.parameters(), lr=config.lr)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [config.epochs - 2, config.epochs - 1], 0.3)
    best = math.inf
    for epoch in range(config.epochs):
        network.train()
        total = torch.zeros(())
        for past, targets in train_loader:
            loss = -network(past).log_prob(targets).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), config.clip)
            optimizer.step()
            total += loss.detach()
        scheduler.step()
        nll, distance = evaluate(network, test_loader)
        print(f"epoch {epoch}: train {total.item() / len(train_loader):.3f}, test {nll:.3f}, distance {distance:.3f}")
        if nll < best:
            best = nll
            torch.save({"config": asdict(config), "weights": network.state_dict()}, path)


def main() -> None:
    config = DriftConfig()
    torch.manual_seed(config.seed)
    data = drift(config)
    train_set, test_set = torch.utils.data.random_split(data, [0.88, 0.12])
    train_loader = DataLoader(train_set, batch_size=config.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=200)
    network = DriftNetwork(data.tensors[0].shape[-1], config.hidden, config.targets)
    with tempfile.TemporaryDirectory() as folder:
        fit(network, train_loader, test_loader, config, os.path.join(folder, "best.pt"))


if __name__ == "__main__":
    main()
