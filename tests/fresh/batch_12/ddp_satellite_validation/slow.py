"""Land use from small satellite tiles on two processes, with validation after every epoch."""

import os
import socket
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


@dataclass
class Config:
    train_tiles: int = 1024
    val_tiles: int = 2048
    size: int = 32
    bands: int = 4
    classes: int = 8
    width: int = 16
    batch: int = 32
    epochs: int = 5
    lr: float = 0.05
    world: int = 2


def make_tiles(count, config, seed):
    """Each class has a spectrum and a typical size of fields."""
    generator = torch.Generator().manual_seed(seed)
    spectra = torch.randn(config.classes, config.bands, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(config.classes, (count,), generator=generator)
    tiles = torch.empty(count, config.bands, config.size, config.size)
    for label in range(config.classes):
        rows = (labels == label).nonzero().squeeze(1)
        grain = 2 + 2 * (label % 4)
        coarse = torch.randn(len(rows), 1, grain, grain, generator=generator)
        pattern = F.interpolate(coarse, size=(config.size, config.size), mode="bilinear", align_corners=False)
        tiles[rows] = spectra[label][None, :, None, None] * (0.4 + pattern)
    tiles += 0.5 * torch.randn(tiles.shape, generator=generator)
    return TensorDataset(tiles, labels)


class Residual(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(inplace=True),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.short = nn.Conv2d(inside, outside, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x))


def build(config):
    w = config.width
    return nn.Sequential(
        nn.Conv2d(config.bands, w, 3, 1, 1, bias=False),
        nn.BatchNorm2d(w),
        nn.ReLU(inplace=True),
        Residual(w, w, 1),
        Residual(w, 2 * w, 2),
        Residual(2 * w, 4 * w, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * w, config.classes),
    )


class Meter:
    def __init__(self):
        self.sums = torch.zeros(3)

    def add(self, scores, labels, loss):
        right = (scores.argmax(1) == labels).sum()
        self.sums += torch.stack([right.float(), loss.detach() * len(labels), torch.tensor(float(len(labels)))])

    def reduce(self):
        dist.all_reduce(self.sums)

    def result(self):
        right, loss, count = self.sums.tolist()
        return right / count, loss / count


def get_loaders(config, rank):
    train, val = make_tiles(config.train_tiles, config, 1), make_tiles(config.val_tiles, config, 2)
    sampler = DistributedSampler(train, config.world, rank, drop_last=True)
    train_loader = DataLoader(train, config.batch, sampler=sampler, drop_last=True)
    val_loader = DataLoader(val, config.batch, shuffle=False)
    return train_loader, val_loader


def train_epoch(model, loader, optimizer):
    model.train()
    meter = Meter()
    for tiles, labels in loader:
        scores = model(tiles)
        loss = F.cross_entropy(scores, labels, label_smoothing=0.05)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        meter.add(scores, labels, loss)
    meter.reduce()
    return meter.result()


@torch.no_grad()
def validate(model, loader):
    model.eval()
    meter = Meter()
    for tiles, labels in loader:
        scores = model(tiles)
        meter.add(scores, labels, F.cross_entropy(scores, labels))
    meter.reduce()
    return meter.result()


def main_worker(rank, config):
    dist.init_process_group("gloo", rank=rank, world_size=config.world)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train_loader, val_loader = get_loaders(config, rank)
    model = DistributedDataParallel(build(config))
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.epochs)
    best = 0.0
    for epoch in range(config.epochs):
        train_loader.sampler.set_epoch(epoch)
        accuracy, loss = train_epoch(model, train_loader, optimizer)
        val_accuracy, val_loss = validate(model.module, val_loader)
        schedule.step()
        best = max(best, val_accuracy)
        if rank == 0:
            print(
                f"epoch {epoch} train {accuracy:.3f} {loss:.3f} val {val_accuracy:.3f} {val_loss:.3f} best {best:.3f}"
            )
    dist.destroy_process_group()


def main():
    config = Config()
    if "RANK" in os.environ:
        main_worker(int(os.environ["RANK"]), config)
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    mp.spawn(main_worker, args=(config,), nprocs=config.world)


if __name__ == "__main__":
    main()
