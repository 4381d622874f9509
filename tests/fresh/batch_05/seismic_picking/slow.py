"""Arrival times of seismic waves, picked by a U-shaped network on three channels."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Settings:
    train_traces: int = 320
    valid_traces: int = 960
    length: int = 1536
    batch_size: int = 16
    epochs: int = 6
    lr: float = 2e-3
    filters: int = 8
    seed: int = 218


def synthesize(count, length, seed):
    """Noise, then a fast weak wave, then a slow strong one; targets are bumps at both arrivals."""
    generator = torch.Generator().manual_seed(seed)
    time = torch.arange(length)
    p = torch.randint(100, length // 2, (count, 1), generator=generator)
    s = p + torch.randint(80, length // 3, (count, 1), generator=generator)
    waves = torch.randn(count, 3, length, generator=generator) * 0.3
    for arrival, period, strength in ((p, 9.0, 1.0), (s, 23.0, 2.5)):
        delay = (time - arrival).clamp(min=0)
        ring = torch.sin(2 * torch.pi * delay / period) * torch.exp(-delay / 120.0)
        gain = strength * torch.rand(count, 3, 1, generator=generator)
        waves += gain * ring[:, None]
    bumps = [torch.exp(-0.5 * ((time - arrival) / 10.0).square()) for arrival in (p, s)]
    noise = (1 - sum(bumps)).clamp(min=0)
    targets = torch.stack((*bumps, noise), dim=1)
    return TensorDataset(waves / waves.std(dim=2, keepdim=True), targets / targets.sum(dim=1, keepdim=True))


class Down(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, 7, stride, 3, bias=False)
        self.norm = nn.BatchNorm1d(outputs, eps=1e-3)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.drop(torch.relu(self.norm(self.conv(x))))


class Up(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.up = nn.ConvTranspose1d(inputs, outputs, 8, 4, 2, bias=False)
        self.merge = Down(2 * outputs, outputs, 1)

    def forward(self, x, skip):
        return self.merge(torch.cat((torch.relu(self.up(x)), skip), dim=1))


class PhaseNet(nn.Module):
    def __init__(self, filters):
        super().__init__()
        sizes = [filters * 2**level for level in range(4)]
        self.stem = Down(3, filters, 1)
        self.down = nn.ModuleList(Down(a, b, 4) for a, b in pairwise(sizes))
        self.up = nn.ModuleList(Up(b, a) for a, b in zip(sizes[-2::-1], sizes[:0:-1]))
        self.out = nn.Conv1d(filters, 3, 1)

    def forward(self, x):
        skips = [self.stem(x)]
        for down in self.down:
            skips.append(down(skips[-1]))
        x = skips.pop()
        for up in self.up:
            x = up(x, skips.pop())
        return self.out(x).log_softmax(dim=1)


def cross_entropy(log_probs, targets):
    return -(targets * log_probs).sum(dim=1).mean()


class Trainer:
    def __init__(self, model, settings):
        self.model, self.settings = model, settings
        self.optimizer = torch.optim.Adam(model.parameters(), lr=settings.lr, fused=True)

    def train_epoch(self, loader):
        self.model.train()
        total = torch.zeros(())
        for waves, targets in loader:
            loss = cross_entropy(self.model(waves), targets)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
        return total.item() / len(loader)

    def validate(self, loader):
        """The mean loss, and the mean error of each arrival in samples."""
        self.model.eval()
        total, errors = 0.0, []
        for waves, targets in loader:
            log_probs = self.model(waves)
            total += cross_entropy(log_probs, targets)
            errors.append((log_probs.argmax(dim=2) - targets.argmax(dim=2))[:, :2].abs().float())
        return total.item() / len(loader), torch.cat(errors).mean(dim=0).tolist()

    def fit(self, train, valid):
        for epoch in range(self.settings.epochs):
            train_loss = self.train_epoch(train)
            valid_loss, (p_error, s_error) = self.validate(valid)
            print(f"epoch {epoch}: loss {train_loss:.4f} valid {valid_loss:.4f} P {p_error:.1f} S {s_error:.1f}")


if __name__ == "__main__":
    settings = Settings()
    torch.manual_seed(settings.seed)
    train = synthesize(settings.train_traces, settings.length, settings.seed)
    valid = synthesize(settings.valid_traces, settings.length, settings.seed + 1)
    Trainer(PhaseNet(settings.filters), settings).fit(
        DataLoader(train, settings.batch_size, shuffle=True), DataLoader(valid, settings.batch_size)
    )
