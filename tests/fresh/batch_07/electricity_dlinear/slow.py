"""Electricity load of many customers: a linear forecast of trend and season, with own weights for each customer."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def make_load(customers, hours, seed):
    generator = torch.Generator().manual_seed(seed)
    t = torch.arange(hours)[:, None] * 6.2832 / 24
    phase = 6.28 * torch.rand(customers, generator=generator)
    level = torch.randn(hours, customers, generator=generator).mul_(0.05).cumsum(0)
    load = torch.sin(t + phase) + 0.4 * torch.sin(t / 7 + 2 * phase) + level
    load = load + 0.2 * torch.randn(hours, customers, generator=generator)
    return (load - load.mean(0)) / load.std(0)


class LoadDataset(Dataset):
    def __init__(self, data, seq_len, pred_len):
        self.data, self.seq_len, self.pred_len = data, seq_len, pred_len

    def __len__(self):
        return len(self.data) - self.seq_len - self.pred_len + 1

    def __getitem__(self, index):
        middle = index + self.seq_len
        return self.data[index:middle], self.data[middle : middle + self.pred_len]


class MovingAverage(nn.Module):
    """The trend: a centred mean, with the ends repeated."""

    def __init__(self, kernel_size):
        super().__init__()
        self.pad = nn.ReplicationPad1d(kernel_size // 2)
        self.mean = nn.AvgPool1d(kernel_size, stride=1)

    def forward(self, x):
        return self.mean(self.pad(x))


class IndividualLinear(nn.Module):
    """(batch, channels, steps) to (batch, channels, horizon)."""

    def __init__(self, channels, steps, horizon):
        super().__init__()
        self.horizon = horizon
        self.layers = nn.ModuleList(nn.Linear(steps, horizon) for _ in range(channels))

    def forward(self, x):
        output = torch.zeros(x.shape[0], x.shape[1], self.horizon)
        for i, layer in enumerate(self.layers):
            output[:, i, :] = layer(x[:, i, :])
        return output


class DLinear(nn.Module):
    def __init__(self, channels, seq_len, pred_len, kernel_size=25):
        super().__init__()
        self.decomposition = MovingAverage(kernel_size)
        self.seasonal = IndividualLinear(channels, seq_len, pred_len)
        self.trend = IndividualLinear(channels, seq_len, pred_len)

    def forward(self, x):
        x = x.transpose(1, 2)
        trend = self.decomposition(x)
        return (self.seasonal(x - trend) + self.trend(trend)).transpose(1, 2)


class Experiment:
    def __init__(self, args):
        self.args = args
        data = make_load(args.customers, args.hours, seed=2021)
        border = int(0.8 * args.hours)
        self.train_loader = DataLoader(
            LoadDataset(data[:border], args.seq_len, args.pred_len), args.batch_size, shuffle=True, drop_last=True
        )
        self.test_loader = DataLoader(LoadDataset(data[border:], args.seq_len, args.pred_len), 4 * args.batch_size)
        self.model = DLinear(args.customers, args.seq_len, args.pred_len)
        self.criterion = nn.MSELoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=args.learning_rate, momentum=0.9)

    def train(self):
        for epoch in range(self.args.train_epochs):
            losses = []
            for x, y in self.train_loader:
                self.optimizer.zero_grad()
                loss = self.criterion(self.model(x), y)
                loss.backward()
                self.optimizer.step()
                losses.append(loss.detach())
            print(f"epoch {epoch}: train {torch.stack(losses).mean().item():.4f} test {self.test():.4f}")

    @torch.no_grad()
    def test(self):
        return torch.stack([self.criterion(self.model(x), y) for x, y in self.test_loader]).mean().item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--customers", type=int, default=64)
    parser.add_argument("--hours", type=int, default=3000)
    parser.add_argument("--seq_len", type=int, default=168)
    parser.add_argument("--pred_len", type=int, default=48)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--train_epochs", type=int, default=8)
    parser.add_argument("--learning_rate", type=float, default=0.05)
    torch.manual_seed(2021)
    Experiment(parser.parse_args()).train()
