"""District heating demand of the next day from two weeks of measurements, with early stopping."""

import argparse
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def make_demand(hours, substations, seed):
    generator = torch.Generator().manual_seed(seed)
    clock = torch.arange(hours)
    outside = 8 - 10 * torch.cos(2 * math.pi * clock / 8760) + 3 * torch.sin(2 * math.pi * clock / 24)
    outside = outside + 2 * torch.randn(hours, generator=generator)
    size = 1 + torch.rand(substations, 1, generator=generator)
    morning = 2 * torch.exp(-((clock % 24 - 7.0) ** 2) / 4)
    demand = size * (F.relu(18 - outside) / 6 + morning) + 0.2 * torch.randn(substations, hours, generator=generator)
    series = torch.stack([demand, outside.expand_as(demand)], dim=1)
    return (series - series.mean(dim=2, keepdim=True)) / series.std(dim=2, keepdim=True)


class WindowedSeries:
    """Views of all windows; a batch copies only the windows that it holds."""

    def __init__(self, series, past, future):
        self.windows = series.unfold(2, past + future, 1)
        self.past = past

    def __len__(self):
        return self.windows.shape[0] * self.windows.shape[2]

    def gather(self, index):
        station = index // self.windows.shape[2]
        start = index % self.windows.shape[2]
        windows = self.windows[station, :, start]
        return windows[:, :, : self.past], windows[:, 0, self.past :]


class CausalBlock(nn.Module):
    def __init__(self, inputs, outputs, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(inputs, outputs, 3, dilation=dilation)
        self.skip = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x):
        return F.relu(self.conv(F.pad(x, (self.pad, 0))) + self.skip(x))


class DemandTCN(nn.Module):
    def __init__(self, channels=32, future=24):
        super().__init__()
        widths = [2] + [channels] * 6
        self.blocks = nn.Sequential(*(CausalBlock(a, b, 2**i) for i, (a, b) in enumerate(zip(widths, widths[1:]))))
        self.head = nn.Linear(channels, future)

    def forward(self, x):
        return self.head(self.blocks(x)[:, :, -1])


@torch.no_grad()
def validate(model, data, index, batch_size):
    model.eval()
    total = torch.zeros(())
    for chosen in index.split(batch_size):
        past, future = data.gather(chosen)
        total += F.l1_loss(model(past), future, reduction="sum")
    model.train()
    return total.item() / (len(index) * 24)


def train(args):
    torch.manual_seed(args.seed)
    series = make_demand(args.hours, args.substations, args.seed)
    split = int(0.8 * args.hours)
    train_data = WindowedSeries(series[:, :, :split], args.past, 24)
    valid_data = WindowedSeries(series[:, :, split:], args.past, 24)
    valid_index = torch.randint(len(valid_data), (256,))
    model = DemandTCN()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    best, best_state, waited = float("inf"), None, 0
    for epoch in range(args.epochs):
        total = torch.zeros(())
        for step in range(1, args.steps + 1):
            past, future = train_data.gather(torch.randint(len(train_data), (args.batch_size,)))
            loss = F.l1_loss(model(past), future)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
            if step % 50 == 0:
                print(f"epoch {epoch} step {step}: {total.item() / step:.4f}")
        error = validate(model, valid_data, valid_index, args.batch_size)
        print(f"epoch {epoch}: valid error {error:.4f}")
        if error < best:
            best, best_state, waited = error, copy.deepcopy(model.state_dict()), 0
        else:
            waited += 1
            if waited > args.patience:
                break
    model.load_state_dict(best_state)
    print(f"final {validate(model, valid_data, valid_index, args.batch_size):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=int, default=6000)
    parser.add_argument("--substations", type=int, default=12)
    parser.add_argument("--past", type=int, default=336)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--patience", type=int, default=2)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    train(parser.parse_args())
