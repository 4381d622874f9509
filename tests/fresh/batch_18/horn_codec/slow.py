"""A small neural codec for horn notes: strided convolutions, residual vector quantisation, spectral losses."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE = 8000
SEGMENT = 8192


class HornNotes(Dataset):
    """Notes of several seconds; every item is a segment from a random place of one of them."""

    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.notes = []
        for _ in range(count):
            time = np.arange(int(rng.uniform(1.5, 3.0) * RATE)) / RATE
            pitch = rng.uniform(90, 500) * (1 + 0.005 * np.sin(2 * np.pi * rng.uniform(3, 7) * time))
            phase = 2 * np.pi * np.cumsum(pitch) / RATE
            note = sum(np.sin(k * phase) / k ** rng.uniform(0.8, 1.6) for k in range(1, 7))
            self.notes.append((0.2 * note * np.minimum(1, 20 * time)).astype(np.float32))
        self.rng = rng

    def __len__(self):
        return len(self.notes)

    def __getitem__(self, index):
        note = self.notes[index]
        start = self.rng.integers(len(note) - SEGMENT)
        gain = np.float32(self.rng.uniform(0.5, 1.0))
        return gain * note[start : start + SEGMENT]


def collate(segments):
    return torch.tensor(segments).unsqueeze(1)


class ResidualUnit(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.wide = nn.Conv1d(channels, channels, 5, padding=2 * dilation, dilation=dilation)
        self.narrow = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        return x + self.narrow(F.elu(self.wide(F.elu(x))))


class Quantizer(nn.Module):
    """Each book of codes describes what the books before it have left over."""

    def __init__(self, books, codes, width):
        super().__init__()
        self.books = nn.ParameterList(torch.randn(codes, width) * 0.5**level for level in range(books))

    def forward(self, x):
        rest, loss = x, x.new_zeros(())
        for book in self.books:
            with torch.no_grad():
                nearest = (book.square().sum(1) - 2 * rest @ book.T).argmin(-1)
            chosen = F.embedding(nearest, book)
            loss = loss + F.mse_loss(chosen, rest.detach()) + 0.25 * F.mse_loss(rest, chosen.detach())
            rest = rest - chosen.detach()
        return x + (x - rest - x).detach(), loss


class Codec(nn.Module):
    def __init__(self, width=24, latent=48, strides=(2, 2)):
        super().__init__()
        down, up, channels = [nn.Conv1d(1, width, 32, 16, 8)], [], width
        for stride in strides:
            down += [ResidualUnit(channels, 1), ResidualUnit(channels, 3), nn.ELU()]
            down += [nn.Conv1d(channels, 2 * channels, 2 * stride, stride, stride // 2)]
            up = [
                nn.ConvTranspose1d(2 * channels, channels, 2 * stride, stride, stride // 2),
                ResidualUnit(channels, 1),
                nn.ELU(),
                *up,
            ]
            channels *= 2
        self.encoder = nn.Sequential(*down, nn.Conv1d(channels, latent, 3, padding=1))
        self.quantizer = Quantizer(4, 256, latent)
        self.decoder = nn.Sequential(
            nn.Conv1d(latent, channels, 3, padding=1), *up, nn.ConvTranspose1d(width, 1, 32, 16, 8)
        )

    def forward(self, sound):
        codes, loss = self.quantizer(self.encoder(sound).transpose(1, 2))
        return self.decoder(codes.transpose(1, 2)), loss


class SpectralLoss(nn.Module):
    def __init__(self, sizes=(256, 1024)):
        super().__init__()
        self.windows = nn.ParameterList(nn.Parameter(torch.hann_window(n), requires_grad=False) for n in sizes)

    @staticmethod
    def spectrum(sound, window):
        bins = torch.stft(sound.squeeze(1), len(window), len(window) // 4, window=window, return_complex=True)
        return torch.view_as_real(bins).square().sum(-1).add(1e-5).log()

    def forward(self, made, sound):
        return sum(F.l1_loss(self.spectrum(made, w), self.spectrum(sound, w)) for w in self.windows)


def main():
    torch.manual_seed(5)
    loader = DataLoader(HornNotes(480, seed=5), batch_size=16, shuffle=True, drop_last=True, collate_fn=collate)
    codec, spectral = Codec(), SpectralLoss()
    optimizer = torch.optim.AdamW(codec.parameters(), lr=1e-3, betas=(0.8, 0.99), fused=True)
    for epoch in range(6):
        total = torch.zeros(())
        for sound in loader:
            made, commitment = codec(sound)
            loss = F.l1_loss(made, sound) + 0.2 * spectral(made, sound) + commitment
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch} loss {total.item() / len(loader):.4f}")


if __name__ == "__main__":
    main()
