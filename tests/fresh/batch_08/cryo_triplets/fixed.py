"""Metric learning on noisy little volumes, such as particles cut out of a tomogram: triplets of anchor and others."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Settings:
    proteins: int = 12
    size: int = 12
    triplets: int = 6
    epochs: int = 6
    steps_per_epoch: int = 120
    margin: float = 0.4
    lr: float = 1e-3


class TripletVolumes:
    """Draws volumes of the same and of another protein; all are made from a few blobs for each protein."""

    def __init__(self, settings, seed=0):
        self.settings = settings
        self.generator = torch.Generator().manual_seed(seed)
        axis = torch.linspace(-1, 1, settings.size)
        grid = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1)
        blobs = torch.rand(settings.proteins, 6, 3, generator=self.generator) * 1.4 - 0.7
        square = ((grid[None, None] - blobs[:, :, None, None, None]) ** 2).sum(-1)
        self.volumes = torch.exp(-square / 0.06).sum(1)[:, None]

    def draw(self, proteins):
        volumes = self.volumes[proteins]
        if torch.rand((), generator=self.generator) < 0.5:
            volumes = volumes.flip(2, 3)
        return volumes + 0.4 * torch.randn(volumes.shape, generator=self.generator)

    def __iter__(self):
        s = self.settings
        for _ in range(s.steps_per_epoch):
            own = torch.randint(s.proteins, (s.triplets,), generator=self.generator)
            other = (own + torch.randint(1, s.proteins, (s.triplets,), generator=self.generator)) % s.proteins
            yield self.draw(own), self.draw(own), self.draw(other)


def convolution(inputs, outputs, stride=1):
    return nn.Sequential(
        nn.Conv3d(inputs, outputs, 3, stride, 1, bias=False), nn.GroupNorm(4, outputs), nn.LeakyReLU(0.1, inplace=True)
    )


class SiameseNet(nn.Module):
    def __init__(self, width=8, dim=32):
        super().__init__()
        self.layers = nn.Sequential(
            convolution(1, width),
            convolution(width, width, 2),
            convolution(width, 2 * width),
            convolution(2 * width, 2 * width, 2),
            convolution(2 * width, 4 * width),
            convolution(4 * width, 4 * width, 2),
            nn.Flatten(),
        )
        self.head = nn.Sequential(nn.Linear(4 * width * 8, 128), nn.LeakyReLU(0.1), nn.Linear(128, dim))

    def forward(self, volume):
        return F.normalize(self.head(self.layers(volume)), dim=1)


class TorchTrainer:
    def __init__(self, settings):
        self.settings = settings
        self.data = TripletVolumes(settings)
        self.model = SiameseNet()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=settings.lr, fused=True)
        self.criterion = nn.TripletMarginWithDistanceLoss(distance_function=self.distance, margin=settings.margin)

    @staticmethod
    def distance(a, b):
        return 1 - F.cosine_similarity(a, b)

    def run_batch(self, anchor, positive, negative):
        anchor_out, positive_out, negative_out = self.model(torch.cat([anchor, positive, negative])).chunk(3)
        return self.criterion(anchor_out, positive_out, negative_out)

    def fit(self):
        for epoch in range(self.settings.epochs):
            running = 0.0
            for anchor, positive, negative in self.data:
                loss = self.run_batch(anchor, positive, negative)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                running += loss.item()
            print(f"epoch {epoch}: {running / self.settings.steps_per_epoch:.4f}")


if __name__ == "__main__":
    torch.manual_seed(1)
    TorchTrainer(Settings()).fit()
