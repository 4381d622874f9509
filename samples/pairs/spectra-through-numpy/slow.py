"""A neural vocoder's loss: spectra of the made and the true sound are compared at two resolutions."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
LENGTH = 2048


class Vocoder(nn.Module):
    """From a mel-like envelope to samples."""

    def __init__(self, bands=20, width=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.ConvTranspose1d(bands, width, 16, stride=8, padding=4),
            nn.LeakyReLU(0.1),
            nn.ConvTranspose1d(width, width // 2, 16, stride=8, padding=4),
            nn.LeakyReLU(0.1),
            nn.Conv1d(width // 2, 1, 7, padding=3),
            nn.Tanh(),
        )

    def forward(self, envelope):
        return self.net(envelope).squeeze(1)


def true_spectrum(sound, size):
    """Magnitudes of Hann windows that overlap by three quarters, of sounds that need no gradient: (n, bins, times)."""
    samples = sound.numpy()
    window = np.hanning(size + 1)[:-1]
    starts = range(0, samples.shape[1] - size + 1, size // 4)
    frames = [[np.abs(np.fft.rfft(row[at : at + size] * window)) for at in starts] for row in samples]
    return torch.tensor(np.array(frames), dtype=torch.float32).transpose(1, 2)


def made_spectrum(sound, size):
    window = torch.hann_window(size)
    return (torch.stft(sound, size, size // 4, window=window, center=False, return_complex=True) + 1e-7).abs()


def spectral_loss(made, true):
    total = F.l1_loss(made, true)
    for size in (512, 128):
        total = total + F.l1_loss(made_spectrum(made, size), true_spectrum(true, size)) / size**0.5
    return total


def sounds(count):
    """Plucked strings and the envelopes that belong to them."""
    time = torch.arange(LENGTH) / 8000
    pitch, decay = 100 + 400 * torch.rand(count, 1), 3 + 20 * torch.rand(count, 1)
    sound = 0.8 * torch.sin(6.283 * pitch * time) * torch.exp(-decay * time)
    bands = torch.exp(-((pitch - torch.linspace(100, 500, 20)) / 40).pow(2))
    return bands[:, :, None] * sound.abs().view(count, 1, 32, 64).amax(3), sound


envelopes, waves = sounds(1000)
model = Vocoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.8, 0.99), fused=True)
for step, chosen in enumerate(torch.randperm(len(waves)).split(8)):
    loss = spectral_loss(model(envelopes[chosen]), waves[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}: {loss.item():.4f}")
