"""Land cover from little satellite pictures with several bands, on the cores of one machine; started with torchrun."""

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


@dataclass
class Config:
    pictures: int = 960
    bands: int = 6
    size: int = 24
    classes: int = 5
    batch_size: int = 12
    epochs: int = 2
    lr: float = 0.03
    seed: int = 3


def setup(config):
    dist.init_process_group("gloo")
    torch.manual_seed(config.seed)
    torch.set_num_threads(os.cpu_count())
    return dist.get_rank()


def land_cover(config):
    """Each class reflects the bands in its own way; borders are smooth random lines."""
    g = torch.Generator().manual_seed(config.seed)
    low = torch.randn(config.pictures, config.classes, 4, 4, generator=g)
    cover = F.interpolate(low, size=config.size, mode="bilinear").argmax(1)
    spectra = torch.rand(config.classes, config.bands, generator=g)
    pictures = spectra[cover].permute(0, 3, 1, 2)
    return TensorDataset(pictures + 0.2 * torch.randn(pictures.shape, generator=g), cover)


class ConvBlock(nn.Sequential):
    def __init__(self, inputs, outputs, dilation):
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=dilation, dilation=dilation, bias=False),
            nn.GroupNorm(4, outputs),
            nn.ReLU(inplace=True),
        )


class Segmenter(nn.Module):
    def __init__(self, bands, classes, width=24):
        super().__init__()
        self.blocks = nn.Sequential(
            ConvBlock(bands, width, 1), *(ConvBlock(width, width, dilation) for dilation in (2, 4))
        )
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        return self.out(self.blocks(x))


class Trainer:
    def __init__(self, config, rank):
        self.config, self.rank = config, rank
        dataset = land_cover(config)
        self.sampler = DistributedSampler(dataset, shuffle=True, drop_last=True)
        self.loader = DataLoader(dataset, config.batch_size, sampler=self.sampler, drop_last=True)
        self.model = DistributedDataParallel(Segmenter(config.bands, config.classes), gradient_as_bucket_view=True)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config.lr, momentum=0.9)

    def run_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        total = 0.0
        for pictures, cover in self.loader:
            loss = F.cross_entropy(self.model(pictures), cover)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        if self.rank == 0:
            print(f"epoch {epoch}: loss {total / len(self.loader):.4f}")

    def train(self):
        for epoch in range(self.config.epochs):
            self.run_epoch(epoch)


def main():
    config = Config()
    trainer = Trainer(config, setup(config))
    trainer.train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
