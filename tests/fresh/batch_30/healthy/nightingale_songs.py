"""Tell nightingales apart by their songs: spectrograms computed once in batches, a transformer over time."""

import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class SongConfig:
    birds: int = 10
    songs: int = 1024
    samples: int = 8192
    n_fft: int = 126
    hop: int = 64
    width: int = 96
    heads: int = 4
    layers: int = 3
    batch_size: int = 16
    epochs: int = 2
    lr: float = 1e-3
    seed: int = 71


def sing(config, songs, seed):
    """Each bird whistles its own melody; tempo and phase vary."""
    world = torch.Generator().manual_seed(config.seed)
    melodies = 300 + 1200 * torch.rand(config.birds, 8, generator=world)
    generator = torch.Generator().manual_seed(seed)
    birds = torch.randint(config.birds, (songs,), generator=generator)
    notes = F.interpolate(melodies[birds].unsqueeze(1), size=config.samples, mode="nearest").squeeze(1)
    tempo = 0.95 + 0.1 * torch.rand(songs, 1, generator=generator)
    phase = (2 * math.pi * notes * tempo / 4000).cumsum(dim=1)
    return torch.sin(phase) + 0.5 * torch.randn(songs, config.samples, generator=generator), birds


def log_spectrograms(waves, config):
    window = torch.hann_window(config.n_fft)
    spectrum = torch.stft(waves, config.n_fft, config.hop, window=window, return_complex=True)
    features = torch.log1p(spectrum.abs()).transpose(1, 2)
    return (features - features.mean()) / features.std()


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))

    def forward(self, hidden):
        batch, time, width = hidden.shape
        qkv = self.qkv(self.norm_attention(hidden)).view(batch, time, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value)
        hidden = hidden + self.out(mixed.transpose(1, 2).reshape(batch, time, width))
        return hidden + self.mlp(self.norm_mlp(hidden))


class SongModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        bands = config.n_fft // 2 + 1
        self.reduce = nn.Conv1d(bands, config.width, kernel_size=5, stride=2, padding=2)
        frames = (config.samples // config.hop + 1 + 1) // 2
        self.position = nn.Parameter(0.02 * torch.randn(frames, config.width))
        self.layers = nn.Sequential(*(Layer(config.width, config.heads) for _ in range(config.layers)))
        self.head = nn.Sequential(nn.LayerNorm(config.width), nn.Linear(config.width, config.birds))

    def forward(self, spectrograms):
        hidden = F.gelu(self.reduce(spectrograms.transpose(1, 2))).transpose(1, 2) + self.position
        return self.head(self.layers(hidden).mean(dim=1))


def accuracy(model, loader):
    model.eval()
    with torch.inference_mode():
        right = torch.cat([model(songs).argmax(dim=1) == birds for songs, birds in loader])
    model.train()
    return right.float().mean().item()


def main():
    config = SongConfig()
    torch.manual_seed(config.seed)
    waves, birds = sing(config, config.songs + 128, seed=config.seed + 1)
    spectrograms = log_spectrograms(waves, config)
    train = TensorDataset(spectrograms[: config.songs], birds[: config.songs])
    valid = TensorDataset(spectrograms[config.songs :], birds[config.songs :])
    train_loader = DataLoader(train, batch_size=config.batch_size, shuffle=True, drop_last=True)
    valid_loader = DataLoader(valid, batch_size=64)

    model = SongModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=0.02, fused=True)
    for epoch in range(config.epochs):
        total = torch.zeros(())
        for songs, birds in train_loader:
            loss = F.cross_entropy(model(songs), birds)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: loss {total.item() / len(train_loader):.4f}, right {accuracy(model, valid_loader):.3f}")


if __name__ == "__main__":
    main()
