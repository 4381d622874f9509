"""Blood pressure from pulse waves on two ranks: a narrow, deep network whose optimizer state is sharded."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def pulses(count, length, seed):
    """Waves whose stiffness and rate give both pressures."""
    g = torch.Generator().manual_seed(seed)
    rate, stiffness = 1 + torch.rand(count, 1, generator=g), torch.rand(count, 1, generator=g)
    time = torch.linspace(0, 12, length)
    wave = torch.sin(rate * time) + stiffness * torch.sin(2 * rate * time + 1)
    target = torch.cat([90 + 30 * rate + 20 * stiffness, 60 + 10 * rate + 15 * stiffness], 1)
    return (wave + 0.1 * torch.randn(count, length, generator=g))[:, None], (target - 110) / 30


class Block(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.conv1 = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)
        self.conv2 = nn.Conv1d(width, width, 1)
        self.norm = nn.GroupNorm(4, width)

    def forward(self, x):
        return x + self.conv2(F.relu(self.norm(self.conv1(x))))


class PressureNet(nn.Module):
    def __init__(self, width=24, blocks=14):
        super().__init__()
        self.stem = nn.Conv1d(1, width, 7, stride=4, padding=3)
        self.blocks = nn.Sequential(*(Block(width, 2 ** (i % 4)) for i in range(blocks)))
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean(2))


class Session:
    def __init__(self, args):
        self.args, self.rank = args, dist.get_rank()
        self.model = DistributedDataParallel(PressureNet())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)

    def train(self, data):
        sampler = DistributedSampler(data, seed=3, drop_last=True)
        loader = DataLoader(data, batch_size=self.args.batch_size, sampler=sampler, drop_last=True)
        for epoch in range(self.args.epochs):
            sampler.set_epoch(epoch)
            total = torch.zeros(())
            for wave, target in loader:
                loss = F.smooth_l1_loss(self.model(wave), target)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                total += loss.detach()
            dist.all_reduce(total)
            if self.rank == 0:
                print(f"epoch {epoch}: loss {total.item() / len(loader) / dist.get_world_size():.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--patients", type=int, default=3840)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    Session(args).train(TensorDataset(*pulses(args.patients, args.length, seed=61)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
