"""Faults of ball bearings on an unlabelled machine: features of both machines are drawn together by MMD (as in DAN)."""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Settings:
    records: int = 3072
    length: int = 512
    batch: int = 96
    epochs: int = 4
    features: int = 128
    lr: float = 1e-3
    weight: float = 0.5


def vibrations(settings, speed, noise, seed):
    """Vibration of healthy bearings and of two faults, at the speed of one machine."""
    g = torch.Generator().manual_seed(seed)
    label = torch.randint(0, 3, (settings.records,), generator=g)
    t = torch.arange(settings.length) / settings.length
    phase = torch.rand(settings.records, 1, generator=g) * 6.2832
    rate = speed * torch.tensor([8.0, 17.0, 29.0])[label][:, None]
    impulses = torch.sin(6.2832 * rate * t + phase).clamp(min=0) ** 8
    ringing = torch.sin(6.2832 * 110 * t + phase)
    signal = impulses * ringing + 0.3 * torch.sin(6.2832 * speed * t + phase)
    signal = signal + noise * torch.randn(settings.records, settings.length, generator=g)
    return signal.unsqueeze(1), label


class FeatureNet(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(1, 16, 33, 4, 16),
            nn.BatchNorm1d(16),
            nn.ReLU(),
            nn.Conv1d(16, 32, 9, 2, 4),
            nn.BatchNorm1d(32),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(8),
            nn.Flatten(),
            nn.Linear(256, features),
        )

    def forward(self, x):
        return self.conv(x)


class MMDLoss(nn.Module):
    """Maximum mean discrepancy with a sum of Gaussian kernels."""

    def __init__(self, kernel_mul=2.0, kernel_num=5):
        super().__init__()
        self.kernel_mul, self.kernel_num = kernel_mul, kernel_num

    def gaussian_kernel(self, source, target):
        total = torch.cat([source, target])
        count = len(total)
        norms = total.pow(2).sum(1)
        distance = (norms[:, None] + norms[None, :] - 2 * total @ total.t()).clamp(min=0)
        bandwidth = distance.detach().sum() / (count * count - count)
        bandwidth = bandwidth / self.kernel_mul ** (self.kernel_num // 2)
        return sum(torch.exp(-distance / (bandwidth * self.kernel_mul**i)) for i in range(self.kernel_num))

    def forward(self, source, target):
        kernels = self.gaussian_kernel(source, target)
        n = len(source)
        within = kernels[:n, :n].mean() + kernels[n:, n:].mean()
        return within - kernels[:n, n:].mean() - kernels[n:, :n].mean()


def evaluate(net, classifier, signals, labels):
    net.eval()
    with torch.no_grad():
        guesses = torch.cat([classifier(net(part)).argmax(1) for part in signals.split(512)])
    net.train()
    return (guesses == labels).float().mean().item()


def main():
    settings = Settings()
    torch.manual_seed(7)
    source, labels = vibrations(settings, speed=1.0, noise=0.2, seed=1)
    target, hidden_labels = vibrations(settings, speed=1.15, noise=0.35, seed=2)
    net, classifier, mmd = FeatureNet(settings.features), nn.Linear(settings.features, 3), MMDLoss()
    optimizer = torch.optim.Adam([*net.parameters(), *classifier.parameters()], lr=settings.lr)
    for epoch in range(settings.epochs):
        pairs = zip(
            torch.randperm(settings.records).split(settings.batch),
            torch.randperm(settings.records).split(settings.batch),
        )
        for own, other in pairs:
            features, other_features = net(source[own]), net(target[other])
            classification = F.cross_entropy(classifier(features), labels[own])
            discrepancy = mmd(features, other_features)
            loss = classification + settings.weight * discrepancy
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        accuracy = evaluate(net, classifier, target, hidden_labels)
        print(f"epoch {epoch}: classification {classification:.4f} mmd {discrepancy:.4f} on the other {accuracy:.3f}")


if __name__ == "__main__":
    main()
