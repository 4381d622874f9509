"""A small diffusion model of the spectrograms of skylarks; noisy views are drawn by workers."""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class SongPatches(Dataset):
    """Chirps on a time-frequency patch, each time with another level of noise."""

    def __init__(self, songs, side, levels, seed):
        generator = torch.Generator().manual_seed(seed)
        time = torch.linspace(0, 1, side)
        bins = torch.linspace(0, 1, side).view(1, side, 1)
        pitch = 0.5 + 0.35 * torch.sin(
            2
            * math.pi
            * (torch.rand(songs, 1, generator=generator) * 4 * time + torch.rand(songs, 1, generator=generator))
        )
        self.patches = torch.exp(-((bins - pitch.unsqueeze(1)) ** 2) / 0.004).unsqueeze(1) * 2 - 1
        self.alpha_bar = torch.cos(torch.linspace(0.02, math.pi / 2 - 0.02, levels)) ** 2

    def __len__(self):
        return len(self.patches)

    def __getitem__(self, index):
        level = torch.randint(len(self.alpha_bar), ())
        noise = torch.randn_like(self.patches[index])
        kept = self.alpha_bar[level]
        noisy = kept.sqrt() * self.patches[index] + (1 - kept).sqrt() * noise
        return noisy, noise, level


class LevelEmbedding(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("rates", torch.exp(-math.log(1e4) * torch.arange(width // 2) / (width // 2)))
        self.mix = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, level):
        angles = level.unsqueeze(1) * self.rates
        return self.mix(torch.cat([angles.sin(), angles.cos()], dim=1))


class Block(nn.Module):
    def __init__(self, inputs, outputs, width):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm = nn.GroupNorm(4, outputs)
        self.shift = nn.Linear(width, outputs)

    def forward(self, x, embedding):
        return F.silu(self.norm(self.conv(x)) + self.shift(embedding)[:, :, None, None])


class TinyUNet(nn.Module):
    def __init__(self, base=16, width=64):
        super().__init__()
        self.level = LevelEmbedding(width)
        self.down = Block(1, base, width)
        self.middle = nn.ModuleList([Block(base, 2 * base, width), Block(2 * base, 2 * base, width)])
        self.up = Block(3 * base, base, width)
        self.out = nn.Conv2d(base, 1, 1)

    def forward(self, noisy, level):
        embedding = self.level(level.float())
        skip = self.down(noisy, embedding)
        x = F.avg_pool2d(skip, 2)
        for block in self.middle:
            x = block(x, embedding)
        x = F.interpolate(x, scale_factor=2)
        return self.out(self.up(torch.cat([x, skip], dim=1), embedding))


def make_loader(dataset, batch_size=32, num_workers=2, persistent_workers=False):
    return DataLoader(
        dataset,
        batch_size=batch_size,
        shuffle=True,
        num_workers=num_workers,
        persistent_workers=persistent_workers,
        drop_last=True,
    )


def train(options):
    torch.manual_seed(options.seed)
    dataset = SongPatches(options.songs, options.side, options.levels, options.seed)
    loader = make_loader(dataset, options.batch_size)
    model = TinyUNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, fused=True)
    for epoch in range(options.epochs):
        total = torch.zeros(())
        for noisy, noise, level in loader:
            loss = F.mse_loss(model(noisy, level), noise)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: {total.item() / len(loader):.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--songs", type=int, default=288)
    parser.add_argument("--side", type=int, default=24)
    parser.add_argument("--levels", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=90)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
