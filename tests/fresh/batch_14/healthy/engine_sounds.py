"""Faults of engines by ear: spectrograms made once, masked in whole batches, and a small network."""

import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def record_engines(count, samples, rate, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (count,), generator=generator)
    time = torch.arange(samples) / rate
    speed = 30 + 20 * torch.rand(count, 1, generator=generator)
    sound = sum(torch.sin(2 * math.pi * k * speed * time) / k for k in (1, 2, 4))
    knock = torch.sin(2 * math.pi * (400 + 300 * labels[:, None].float()) * time)
    gate = (torch.sin(2 * math.pi * speed * time / 2) > 0.9).float()
    return sound + 0.7 * knock * gate + 0.3 * torch.randn(count, samples, generator=generator), labels


class LogMel(nn.Module):
    def __init__(self, rate, window=512, hop=160, bands=40):
        super().__init__()
        self.size, self.hop = window, hop
        self.register_buffer("window", torch.hann_window(window))
        top = 2595 * math.log10(1 + rate / 2 / 700)
        edges = 700 * (10 ** (torch.linspace(0, top, bands + 2) / 2595) - 1)
        bins = torch.linspace(0, rate / 2, window // 2 + 1)
        rising = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
        falling = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
        self.register_buffer("filters", torch.minimum(rising, falling).clamp(min=0))

    def forward(self, sound):
        spectrum = torch.stft(sound, self.size, self.hop, window=self.window, return_complex=True)
        return (self.filters @ spectrum.abs().square() + 1e-6).log()


class MaskBands(nn.Module):
    """One band of frequencies and one of time is silenced in each spectrogram, without a loop."""

    def __init__(self, widest):
        super().__init__()
        self.widest = widest

    def mask(self, count, size):
        start = torch.rand(count, 1) * (size - self.widest)
        width = torch.rand(count, 1) * self.widest
        places = torch.arange(size)
        return (places >= start) & (places < start + width)

    def forward(self, spectrograms):
        count, bands, frames = spectrograms.shape
        masked = self.mask(count, bands)[:, :, None] | self.mask(count, frames)[:, None, :]
        return spectrograms.masked_fill(masked, 0.0)


class SoundNet(nn.Module):
    def __init__(self, classes=4, width=16):
        super().__init__()
        layers, channels = [], 1
        for outputs in (width, 2 * width, 4 * width):
            layers += [
                nn.Conv2d(channels, outputs, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU(),
            ]
            channels = outputs
        self.layers = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(channels, classes))

    def forward(self, spectrograms):
        return self.head(self.layers(spectrograms.unsqueeze(1)).mean(dim=(2, 3)))


@torch.inference_mode()
def accuracy(model, spectrograms, labels):
    model.eval()
    right = torch.cat([model(batch).argmax(dim=1) for batch in spectrograms.split(64)]) == labels
    model.train()
    return right.float().mean().item()


def train(args):
    torch.manual_seed(args.seed)
    sounds, labels = record_engines(args.recordings, args.samples, args.rate, args.seed)
    with torch.inference_mode():
        extract = LogMel(args.rate)
        spectrograms = torch.cat([extract(batch) for batch in sounds.split(100)])
        spectrograms = (spectrograms - spectrograms.mean()) / spectrograms.std()
    spectrograms = spectrograms.clone()
    cut = int(0.85 * args.recordings)
    model, augment = SoundNet(), MaskBands(12)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4, nesterov=True)
    batches = cut // args.batch_size
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * batches)
    history = []
    for epoch in range(args.epochs):
        order = torch.randperm(cut)
        for step in range(batches):
            index = order[step * args.batch_size : (step + 1) * args.batch_size]
            loss = F.cross_entropy(model(augment(spectrograms[index])), labels[index], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            history.append(loss.detach())
            if len(history) == 50:
                print(f"epoch {epoch} step {step}: loss {torch.stack(history).mean().item():.4f}")
                history.clear()
        print(f"epoch {epoch}: accuracy {accuracy(model, spectrograms[cut:], labels[cut:]):.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recordings", type=int, default=700)
    parser.add_argument("--samples", type=int, default=16_000)
    parser.add_argument("--rate", type=int, default=8000)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    train(parser.parse_args())
