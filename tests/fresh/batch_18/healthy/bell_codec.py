"""A codec for bell tones: two books of codes that are moving averages, and a spectral loss with windows made once."""

import torch
import torch.nn.functional as F
from torch import nn


class Codebook(nn.Module):
    """Codes follow the mean of the vectors that chose them."""

    def __init__(self, codes, width, decay=0.98):
        super().__init__()
        self.decay = decay
        self.register_buffer("codes", 0.5 * torch.randn(codes, width))
        self.register_buffer("counts", torch.ones(codes))
        self.register_buffer("sums", self.codes.clone())

    @torch.no_grad()
    def forward(self, x):
        chosen = torch.addmm(self.codes.square().sum(1), x, self.codes.T, alpha=-2).argmin(1)
        if self.training:
            counts = torch.bincount(chosen, minlength=len(self.codes)).float()
            sums = torch.zeros_like(self.sums).index_add_(0, chosen, x)
            self.counts.lerp_(counts, 1 - self.decay)
            self.sums.lerp_(sums, 1 - self.decay)
            self.codes.copy_(self.sums / self.counts.clamp(min=0.01).unsqueeze(1))
        return self.codes[chosen]


class BellCodec(nn.Module):
    def __init__(self, width=32, latent=32, codes=128):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(1, width, 16, 8, 4),
            nn.GELU(),
            nn.Conv1d(width, 2 * width, 8, 4, 2),
            nn.GELU(),
            nn.Conv1d(2 * width, 3 * width, 4, 2, 1),
            nn.GELU(),
            nn.Conv1d(3 * width, latent, 1),
        )
        self.books = nn.ModuleList(Codebook(codes, latent) for _ in range(2))
        self.decoder = nn.Sequential(
            nn.Conv1d(latent, 3 * width, 3, 1, 1),
            nn.GELU(),
            nn.ConvTranspose1d(3 * width, 2 * width, 4, 2, 1),
            nn.GELU(),
            nn.ConvTranspose1d(2 * width, width, 8, 4, 2),
            nn.GELU(),
            nn.ConvTranspose1d(width, 1, 16, 8, 4),
        )

    def quantize(self, x):
        flat = x.detach().transpose(1, 2).flatten(0, 1)
        rest = flat
        for book in self.books:
            rest = rest - book(rest)
        near = (flat - rest).unflatten(0, (x.size(0), -1)).transpose(1, 2)
        return x + (near - x).detach(), F.mse_loss(x, near)

    def forward(self, sound):
        codes, commitment = self.quantize(self.encoder(sound))
        return self.decoder(codes), commitment


class SpectralLoss(nn.Module):
    def __init__(self, size=512):
        super().__init__()
        self.register_buffer("window", torch.hann_window(size))

    def forward(self, made, sound):
        both = torch.cat([made, sound]).squeeze(1)
        size = len(self.window)
        bins = torch.stft(both, size, size // 2, window=self.window, return_complex=True)
        made, sound = torch.view_as_real(bins).square().sum(-1).add(1e-4).log().chunk(2)
        return F.l1_loss(made, sound)


def bells(count, length, seed):
    g = torch.Generator().manual_seed(seed)
    time = torch.arange(length) / 8000
    tones = torch.zeros(count, length)
    base = 150 + 500 * torch.rand(count, 1, generator=g)
    for ratio, loud in ((0.5, 0.4), (1.0, 1.0), (1.2, 0.6), (2.0, 0.5), (2.7, 0.3)):
        fade = torch.exp(-time * ratio * (1 + 3 * torch.rand(count, 1, generator=g)))
        tones += loud * fade * torch.sin(6.2832 * base * ratio * time)
    return 0.3 * tones.unsqueeze(1)


def main():
    torch.manual_seed(31)
    sounds = bells(960, 4096, seed=31)
    codec, spectral = BellCodec(), SpectralLoss()
    optimizer = torch.optim.Adam(codec.parameters(), lr=1e-3, fused=True)
    for epoch in range(7):
        total = torch.zeros(())
        batches = torch.randperm(len(sounds)).split(24)
        for rows in batches:
            sound = sounds[rows]
            made, commitment = codec(sound)
            loss = F.l1_loss(made, sound) + 0.1 * spectral(made, sound) + 0.25 * commitment
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch} loss {total.item() / len(batches):.4f}")


if __name__ == "__main__":
    main()
