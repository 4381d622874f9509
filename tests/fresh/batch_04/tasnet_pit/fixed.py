"""Separation of speakers in the time domain, trained with the permutation that fits best."""

import argparse
from itertools import permutations

import torch
from torch import nn


class TemporalBlock(nn.Module):
    def __init__(self, channels, hidden, dilation):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(channels, hidden, 1),
            nn.PReLU(),
            nn.GroupNorm(1, hidden),
            nn.Conv1d(hidden, hidden, 3, padding=dilation, dilation=dilation, groups=hidden),
            nn.PReLU(),
            nn.GroupNorm(1, hidden),
            nn.Conv1d(hidden, channels, 1),
        )

    def forward(self, x):
        return x + self.net(x)


class TasNet(nn.Module):
    def __init__(self, speakers, filters=64, kernel=32, channels=48, hidden=96, blocks=5):
        super().__init__()
        self.speakers, self.filters = speakers, filters
        self.encoder = nn.Conv1d(1, filters, kernel, kernel // 2, bias=False)
        self.decoder = nn.ConvTranspose1d(filters, 1, kernel, kernel // 2, bias=False)
        self.separator = nn.Sequential(
            nn.GroupNorm(1, filters),
            nn.Conv1d(filters, channels, 1),
            *(TemporalBlock(channels, hidden, 2**i) for i in range(blocks)),
            nn.PReLU(),
            nn.Conv1d(channels, speakers * filters, 1),
        )

    def forward(self, mixture):
        frames = torch.relu(self.encoder(mixture.unsqueeze(1)))
        masks = torch.sigmoid(self.separator(frames)).view(len(mixture), self.speakers, self.filters, -1)
        parts = (masks * frames.unsqueeze(1)).flatten(0, 1)
        return self.decoder(parts).view(len(mixture), self.speakers, -1)


def si_sdr(estimate, source, eps=1e-8):
    """Scale-invariant ratio in dB along the last dimension."""
    estimate = estimate - estimate.mean(dim=-1, keepdim=True)
    source = source - source.mean(dim=-1, keepdim=True)
    scale = (estimate * source).sum(dim=-1, keepdim=True) / (source.square().sum(dim=-1, keepdim=True) + eps)
    target = scale * source
    noise = estimate - target
    return 10 * torch.log10(target.square().sum(dim=-1) / (noise.square().sum(dim=-1) + eps) + eps)


class PermutationInvariantLoss(nn.Module):
    def __init__(self, speakers):
        super().__init__()
        self.speakers = torch.arange(speakers)
        self.permutations = torch.tensor(list(permutations(range(speakers))))

    def forward(self, estimates, sources):
        pairs = -si_sdr(estimates.unsqueeze(2), sources.unsqueeze(1))
        losses = pairs[:, self.permutations, self.speakers].mean(dim=2)
        return losses.amin(dim=1).mean()


class Mixtures:
    """Voices are sums of harmonics with a wavering pitch."""

    def __init__(self, count, speakers, length, seed):
        generator = torch.Generator().manual_seed(seed)
        time = torch.arange(length) / 8000
        pitch = 90 + 200 * torch.rand(count, speakers, 1, generator=generator)
        waver = torch.sin(2 * torch.pi * (2 + 4 * torch.rand(count, speakers, 1, generator=generator)) * time)
        phase = 2 * torch.pi * pitch * time + 0.5 * waver
        self.sources = sum(torch.sin(k * phase) / k for k in (1, 2, 3))
        self.mixtures = self.sources.sum(dim=1)

    def batches(self, size):
        for rows in torch.randperm(len(self.mixtures)).split(size):
            yield self.mixtures[rows], self.sources[rows]


def train(args):
    torch.manual_seed(520)
    data = Mixtures(args.mixtures, args.speakers, args.length, 521)
    model, criterion = TasNet(args.speakers), PermutationInvariantLoss(args.speakers)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
    for epoch in range(args.epochs):
        history = []
        for mixture, sources in data.batches(args.batch_size):
            loss = criterion(model(mixture), sources)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            history.append(loss.detach())
        print(f"epoch {epoch}: SI-SDR {-torch.stack(history).mean().item():.3f} dB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--speakers", type=int, default=4)
    parser.add_argument("--mixtures", type=int, default=160)
    parser.add_argument("--length", type=int, default=4000)
    parser.add_argument("--batch_size", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-3)
    train(parser.parse_args())
