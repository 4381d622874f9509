"""Streamflow of many catchments from daily weather with an LSTM."""

import argparse
import logging
from dataclasses import dataclass

import torch
import torch.nn as nn

logger = logging.getLogger("hydrograph")


@dataclass
class Basins:
    forcing: torch.Tensor  # basin, day, variable
    static: torch.Tensor
    flow: torch.Tensor


def simulate(basins, days, seed):
    """Two linear stores fed by rain, with basin dependent constants."""
    generator = torch.Generator().manual_seed(seed)
    static = torch.rand(basins, 4, generator=generator)
    season = torch.sin(torch.arange(days) * 2 * torch.pi / 365)
    rain = torch.relu(torch.randn(basins, days, generator=generator) + 0.4 * season)
    warmth = season + 0.3 * torch.randn(basins, days, generator=generator)
    quick, slow = torch.zeros(basins), torch.zeros(basins)
    flow = torch.empty(basins, days)
    for day in range(days):
        quick = quick * (0.3 + 0.4 * static[:, 0]) + rain[:, day] * static[:, 2]
        slow = slow * (0.95 + 0.04 * static[:, 1]) + 0.1 * rain[:, day] - 0.01 * warmth[:, day]
        flow[:, day] = 0.5 * quick + 0.1 * slow.clamp(min=0)
    wind = torch.randn(basins, days, generator=generator)
    return Basins(torch.stack([rain, warmth, wind], dim=2), static, flow)


class SequenceSampler:
    """Random windows of all basins, in batches."""

    def __init__(self, data, window, batch_size, seed):
        self.data, self.window, self.batch_size = data, window, batch_size
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, first, last):
        basin = torch.randint(len(self.data.static), (self.batch_size,), generator=self.generator)
        end = torch.randint(first + self.window, last, (self.batch_size,), generator=self.generator)
        days = end[:, None] + torch.arange(-self.window, 0)
        return self.data.forcing[basin[:, None], days], self.data.static[basin], self.data.flow[basin, end - 1]


class StreamflowLSTM(nn.Module):
    def __init__(self, variables, attributes, hidden, dropout=0.2):
        super().__init__()
        self.static = nn.Sequential(nn.Linear(attributes, 8), nn.Tanh())
        self.lstm = nn.LSTM(variables + 8, hidden, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden, 1)
        with torch.no_grad():
            self.lstm.bias_hh_l0[hidden : 2 * hidden] = 3.0

    def forward(self, forcing, attributes):
        logger.debug(f"forcing of the last day: {forcing[:, -1]}")
        embedded = self.static(attributes)
        logger.debug(f"embedded attributes: {embedded}")
        repeated = embedded[:, None].expand(-1, forcing.shape[1], -1)
        states, _ = self.lstm(torch.cat([forcing, repeated], dim=2))
        flow = self.head(self.dropout(states[:, -1])).squeeze(1)
        logger.debug(f"predicted flow: {flow}")
        return flow


def nash_sutcliffe(predicted, observed):
    return 1 - ((predicted - observed) ** 2).sum() / ((observed - observed.mean()) ** 2).sum()


class Trainer:
    def __init__(self, model, sampler, args):
        self.model, self.sampler, self.args = model, sampler, args
        self.optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
        self.split = int(0.8 * args.days)

    def train_epoch(self):
        self.model.train()
        total = 0.0
        for _ in range(self.args.steps):
            forcing, attributes, flow = self.sampler(0, self.split)
            self.optimizer.zero_grad()
            loss = nn.functional.mse_loss(self.model(forcing, attributes), flow)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            total += loss.item()
        return total / self.args.steps

    @torch.no_grad()
    def evaluate(self, batches=10):
        self.model.eval()
        predicted, observed = [], []
        for _ in range(batches):
            forcing, attributes, flow = self.sampler(self.split, self.args.days)
            predicted.append(self.model(forcing, attributes))
            observed.append(flow)
        return nash_sutcliffe(torch.cat(predicted), torch.cat(observed)).item()

    def fit(self):
        for epoch in range(self.args.epochs):
            loss = self.train_epoch()
            logger.info("epoch %d: loss %.4f, NSE %.3f", epoch, loss, self.evaluate())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--basins", type=int, default=60)
    parser.add_argument("--days", type=int, default=1500)
    parser.add_argument("--window", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=48)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=8)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    logging.basicConfig(level=logging.DEBUG if args.verbose else logging.INFO, format="%(message)s")
    torch.manual_seed(args.seed)
    data = simulate(args.basins, args.days, args.seed)
    model = StreamflowLSTM(data.forcing.shape[2], data.static.shape[1], args.hidden)
    Trainer(model, SequenceSampler(data, args.window, args.batch_size, args.seed), args).fit()


if __name__ == "__main__":
    main()
