"""Sort welds by their faults from ultrasound images: a deep narrow residual network on two ranks."""

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


@dataclass
class TrainConfig:
    welds: int = 1200
    side: int = 32
    faults: int = 6
    width: int = 24
    depth: int = 14
    batch_size: int = 8
    epochs: int = 2
    lr: float = 0.02
    momentum: float = 0.9
    seed: int = 0
    bucket_cap_mb: float = 25.0


class Welds(Dataset):
    def __init__(self, config):
        gen = torch.Generator().manual_seed(config.seed + 1)
        self.labels = torch.randint(config.faults, (config.welds,), generator=gen)
        depth = torch.arange(config.side)
        echo = torch.sin(depth[None, :, None] * (0.3 + 0.2 * self.labels[:, None, None]) + depth[None, None] * 0.1)
        self.images = (echo + 0.8 * torch.randn(config.welds, config.side, config.side, generator=gen))[:, None]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm_a, self.norm_b = nn.GroupNorm(4, width), nn.GroupNorm(4, width)
        self.conv_a, self.conv_b = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + self.conv_b(F.relu(self.norm_b(self.conv_a(F.relu(self.norm_a(x))))))


class WeldNet(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.stem = nn.Conv2d(1, config.width, 4, 4)
        self.blocks = nn.Sequential(*[Residual(config.width) for _ in range(config.depth)])
        self.head = nn.Linear(config.width, config.faults)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def main(config):
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(config.seed)
    dataset = Welds(config)
    sampler = DistributedSampler(dataset, shuffle=True, seed=config.seed, drop_last=True)
    loader = DataLoader(dataset, config.batch_size, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(WeldNet(config), broadcast_buffers=False, bucket_cap_mb=config.bucket_cap_mb)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr, momentum=config.momentum)
    for epoch in range(config.epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(TrainConfig())
