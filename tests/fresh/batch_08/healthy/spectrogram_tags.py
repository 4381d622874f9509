"""Sounds of a town: log-mel spectrograms are made once, masked by the batch, and read by a channels-last network."""

import torch
import torch.nn.functional as F
from torch import nn

RATE, CLASSES = 8000, 6


def mel_filters(bins, mels):
    """Triangles that are evenly spaced in mel."""

    def to_mel(hertz):
        return 2595 * torch.log10(1 + hertz / 700)

    edges = torch.linspace(0, to_mel(torch.tensor(RATE / 2)).item(), mels + 2)
    pitch = to_mel(torch.linspace(0, RATE / 2, bins))[:, None]
    up = (pitch - edges[:-2]) / (edges[1:-1] - edges[:-2])
    down = (edges[2:] - pitch) / (edges[2:] - edges[1:-1])
    return torch.minimum(up, down).clamp(min=0)


def spectrograms(waves, mels=40):
    filters, window = mel_filters(129, mels), torch.hann_window(256)
    parts = []
    for some in waves.split(128):
        power = torch.stft(some, 256, 128, window=window, return_complex=True).abs() ** 2
        parts.append((power.transpose(1, 2) @ filters + 1e-5).log().transpose(1, 2))
    features = torch.cat(parts)[:, None]
    return (features - features.mean()) / features.std()


def town(count, seed):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=g)
    time = torch.arange(RATE) / RATE
    pitch = (300 + 400 * labels + 30 * torch.randn(count, generator=g))[:, None]
    wobble = torch.sin(6.28 * (1 + labels)[:, None] * time)
    return torch.sin(6.28 * pitch * time + 5 * wobble) + 0.5 * torch.randn(count, RATE, generator=g), labels


def masked(x, width=8):
    """One stretch of time and one of pitch is silenced, another for each sound."""
    n, _, mels, frames = x.shape
    start = torch.rand(2, n, 1) * torch.tensor([mels - width, frames - width])[:, None, None]
    pitch, time = ((torch.arange(size) - s) for size, s in zip((mels, frames), start))
    hidden_pitch = (pitch >= 0) & (pitch < width)
    hidden_time = (time >= 0) & (time < width)
    return x.masked_fill(hidden_pitch[:, None, :, None] | hidden_time[:, None, None], 0.0)


def network(width=16):
    layers = []
    for i, o in ((1, width), (width, 2 * width), (2 * width, 4 * width)):
        layers += [nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True)]
        layers += [nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, CLASSES))


def main():
    torch.manual_seed(0)
    waves, labels = town(1536, 1)
    features = spectrograms(waves)
    model = network().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    epochs, size = 9, 32
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=epochs * len(features) // size)
    for epoch in range(epochs):
        total = 0.0
        for index in torch.randperm(len(features)).split(size):
            batch = masked(features[index]).contiguous(memory_format=torch.channels_last)
            loss = F.cross_entropy(model(batch), labels[index], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total * size / len(features):.4f}")


if __name__ == "__main__":
    main()
