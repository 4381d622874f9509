"""A vector-quantised autoencoder of mosaic floors."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class MosaicConfig:
    images: int = 640
    side: int = 32
    width: int = 48
    code_dim: int = 32
    codes: int = 256
    commitment: float = 0.25
    batch_size: int = 16
    epochs: int = 4
    lr: float = 1e-3


def lay_floors(config: MosaicConfig) -> torch.Tensor:
    """Coarse patterns of coloured stones, mirrored as floors are."""
    generator = torch.Generator().manual_seed(31)
    stones = torch.rand(config.images, 3, config.side // 8, config.side // 8, generator=generator)
    quarter = F.interpolate(stones, scale_factor=4, mode="nearest")
    half = torch.cat([quarter, quarter.flip(3)], dim=3)
    floors = torch.cat([half, half.flip(2)], dim=2)
    return (floors + 0.03 * torch.randn(floors.shape, generator=generator)).clamp(0, 1)


class Quantizer(nn.Module):
    def __init__(self, codes: int, dim: int, commitment: float) -> None:
        super().__init__()
        self.codes = nn.Embedding(codes, dim)
        nn.init.uniform_(self.codes.weight, -1 / codes, 1 / codes)
        self.commitment = commitment

    def nearest(self, flat: torch.Tensor) -> torch.Tensor:
        codes = self.codes.weight
        distances = flat.pow(2).sum(dim=1, keepdim=True) - 2 * flat @ codes.T + codes.pow(2).sum(dim=1)
        return distances.argmin(dim=1)

    def forward(self, latents: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        last = latents.permute(0, 2, 3, 1)
        with torch.no_grad():
            chosen = self.nearest(last.reshape(-1, last.shape[-1]))
        quantized = self.codes(chosen).view(last.shape)
        loss = F.mse_loss(quantized, last.detach()) + self.commitment * F.mse_loss(last, quantized.detach())
        straight = last + (quantized - last).detach()
        return straight.permute(0, 3, 1, 2), loss, chosen


class ResBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv2(F.relu(self.conv1(F.relu(x))))


class VQVAE(nn.Module):
    def __init__(self, config: MosaicConfig) -> None:
        super().__init__()
        width = config.width
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 4, stride=2, padding=1),
            ResBlock(width),
            ResBlock(width),
            nn.Conv2d(width, config.code_dim, 1),
        )
        self.quantizer = Quantizer(config.codes, config.code_dim, config.commitment)
        self.decoder = nn.Sequential(
            nn.Conv2d(config.code_dim, width, 3, padding=1),
            ResBlock(width),
            ResBlock(width),
            nn.ConvTranspose2d(width, width, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(width, 3, 4, stride=2, padding=1),
        )

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        quantized, loss, chosen = self.quantizer(self.encoder(images))
        return self.decoder(quantized), loss, chosen


class Training:
    def __init__(self, config: MosaicConfig) -> None:
        self.config = config
        self.floors = lay_floors(config)
        self.model = VQVAE(config)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config.lr)

    def step(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rebuilt, extra, chosen = self.model(images)
        loss = F.mse_loss(rebuilt, images) + extra
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach(), chosen

    def run(self) -> None:
        for epoch in range(self.config.epochs):
            losses, used = [], torch.zeros(self.config.codes, dtype=torch.bool)
            for places in torch.randperm(len(self.floors)).split(self.config.batch_size):
                loss, chosen = self.step(self.floors[places])
                losses.append(loss)
                used[chosen] = True
            print(f"epoch {epoch}: loss {torch.stack(losses).mean():.4f}, {used.sum()} codes in use")


if __name__ == "__main__":
    torch.manual_seed(31)
    Training(MosaicConfig()).run()
