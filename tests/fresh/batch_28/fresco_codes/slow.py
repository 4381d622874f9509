"""A vector-quantised autoencoder for patches of frescoes."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class VQConfig:
    patches: int = 2048
    size: int = 32
    width: int = 32
    code_dim: int = 32
    codes: int = 160
    commitment: float = 0.25
    batch_size: int = 32
    steps: int = 180
    lr: float = 2e-3


def paint(config):
    """Patches with smooth washes of colour, a border and cracks."""
    generator = torch.Generator().manual_seed(12)
    coarse = torch.rand(config.patches, 3, 4, 4, generator=generator)
    washes = F.interpolate(coarse, size=config.size, mode="bicubic", align_corners=False)
    cracks = torch.rand(config.patches, 1, config.size, config.size, generator=generator) < 0.03
    border = torch.zeros(1, 1, config.size, config.size)
    border[..., :2, :] = 1
    framed = torch.rand(config.patches, 1, 1, 1, generator=generator) < 0.3
    return torch.where(cracks | (framed & border.bool()), torch.zeros(()), washes).clamp(0, 1)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 1)
        )

    def forward(self, x):
        return x + self.body(x)


class Encoder(nn.Sequential):
    def __init__(self, width, code_dim):
        super().__init__(
            nn.Conv2d(3, width, 4, stride=2, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, 2 * width, 4, stride=2, padding=1),
            Residual(2 * width),
            nn.Conv2d(2 * width, code_dim, 1),
        )


class Decoder(nn.Sequential):
    def __init__(self, width, code_dim):
        super().__init__(
            nn.Conv2d(code_dim, 2 * width, 3, padding=1),
            Residual(2 * width),
            nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1),
            nn.ReLU(inplace=True),
            nn.ConvTranspose2d(width, 3, 4, stride=2, padding=1),
        )


class Codebook(nn.Module):
    def __init__(self, codes, code_dim, commitment):
        super().__init__()
        self.table = nn.Embedding(codes, code_dim)
        nn.init.uniform_(self.table.weight, -1 / codes, 1 / codes)
        self.commitment = commitment

    @torch.no_grad()
    def nearest(self, flat):
        squared = (flat.unsqueeze(1) - self.table.weight.unsqueeze(0)).pow(2).sum(dim=-1)
        return squared.argmin(dim=1)

    def forward(self, z):
        channels_last = z.permute(0, 2, 3, 1)
        indices = self.nearest(channels_last.flatten(0, 2))
        quantised = self.table(indices).view(channels_last.shape).permute(0, 3, 1, 2)
        loss = F.mse_loss(quantised, z.detach()) + self.commitment * F.mse_loss(z, quantised.detach())
        return z + (quantised - z).detach(), loss, indices


class VQVAE(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.encoder = Encoder(config.width, config.code_dim)
        self.codebook = Codebook(config.codes, config.code_dim, config.commitment)
        self.decoder = Decoder(config.width, config.code_dim)

    def forward(self, patches):
        quantised, code_loss, indices = self.codebook(self.encoder(patches))
        return self.decoder(quantised), code_loss, indices


def perplexity(indices, codes):
    share = torch.bincount(indices, minlength=codes).float() / indices.numel()
    return torch.exp(-torch.xlogy(share, share).sum()).item()


def train(config):
    torch.manual_seed(4)
    patches = paint(config)
    model = VQVAE(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr, fused=True)
    for step in range(config.steps):
        chosen = torch.randint(0, len(patches), (config.batch_size,))
        batch = patches[chosen]
        reconstruction, code_loss, indices = model(batch)
        loss = F.mse_loss(reconstruction, batch) + code_loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 60 == 0:
            print(f"step {step}: loss {loss.item():.4f}, perplexity {perplexity(indices, config.codes):.1f}")
    return model


if __name__ == "__main__":
    train(VQConfig())
