"""Synchronous training by hand on two processes: a deep narrow network, data split by rank."""

import os
from random import Random
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim


class Partition:
    def __init__(self, data, index):
        self.data, self.index = data, index

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        return self.data[self.index[i]]


class DataPartitioner:
    def __init__(self, data, sizes, seed=1234):
        indexes = list(range(len(data)))
        Random(seed).shuffle(indexes)
        self.data, self.partitions = data, []
        for share in sizes:
            cut = int(share * len(data))
            self.partitions.append(indexes[:cut])
            indexes = indexes[cut:]

    def use(self, partition):
        return Partition(self.data, self.partitions[partition])


class Spirals(torch.utils.data.Dataset):
    def __init__(self, count):
        g = torch.Generator().manual_seed(0)
        self.label = torch.randint(0, 5, (count,), generator=g)
        t = torch.rand(count, generator=g) * 3
        angle = t * 2 + self.label * 6.283 / 5 + 0.1 * torch.randn(count, generator=g)
        self.points = torch.stack([t * angle.cos(), t * angle.sin()], 1)

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        return self.points[i], self.label[i]


class DeepNet(nn.Module):
    def __init__(self, width=96, depth=18, classes=5):
        super().__init__()
        self.inp = nn.Linear(2, width)
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.out = nn.Linear(width, classes)

    def forward(self, x):
        x = self.inp(x)
        for linear, norm in zip(self.hidden, self.norms):
            x = x + F.silu(linear(norm(x)))
        return self.out(x)


def partition_dataset(rank, size, batch):
    part = DataPartitioner(Spirals(20_000), [1.0 / size] * size).use(rank)
    return torch.utils.data.DataLoader(part, batch_size=batch // size, shuffle=True, drop_last=True)


def average_gradients(model, size):
    grads = [param.grad for param in model.parameters()]
    flat = torch.cat([grad.flatten() for grad in grads])
    dist.all_reduce(flat, op=dist.ReduceOp.SUM)
    flat /= size
    for grad, part in zip(grads, flat.split([grad.numel() for grad in grads])):
        grad.copy_(part.view_as(grad))


def run(rank, size):
    torch.manual_seed(1234)
    train_set = partition_dataset(rank, size, batch=256)
    model = DeepNet()
    optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    for epoch in range(2):
        epoch_loss = 0.0
        for data, target in train_set:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(data), target)
            epoch_loss += loss.item()
            loss.backward()
            average_gradients(model, size)
            optimizer.step()
        print(f"Rank {rank}, epoch {epoch}: {epoch_loss / len(train_set):.4f}")
    if rank == 0:
        with TemporaryDirectory() as folder:
            torch.save(model.state_dict(), os.path.join(folder, "net.pt"))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
