"""Metric learning on pictures of pottery glazes with proxy anchors: one matrix product for all pairs."""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass(frozen=True)
class Settings:
    glazes: int = 60
    per_glaze: int = 24
    size: int = 48
    batch: int = 48
    embedding: int = 64
    margin: float = 0.1
    alpha: float = 24.0
    epochs: int = 9
    lr: float = 1e-3


def fire_pots(s):
    """Pictures as bytes: each glaze has its own colour and grain."""
    g = torch.Generator().manual_seed(9)
    colour = torch.rand(s.glazes, 3, 1, 1, generator=g)
    grain = torch.randn(s.glazes, 3, 12, 12, generator=g) * 0.2
    labels = torch.arange(s.glazes).repeat_interleave(s.per_glaze)
    pots = colour[labels] + F.interpolate(grain, size=(s.size, s.size), mode="nearest")[labels]
    pots = pots + 0.1 * torch.randn(len(labels), 3, s.size, s.size, generator=g)
    return (pots.clamp(0, 1) * 255).to(torch.uint8), labels


def augment(pots):
    """One flip for half of the batch, one shift for all of it, then floats."""
    flipped = torch.rand(len(pots), 1, 1, 1) < 0.5
    pots = torch.where(flipped, pots.flip(-1), pots)
    dy, dx = torch.randint(-4, 5, (2,)).tolist()
    return pots.roll((dy, dx), (-2, -1)).float().div_(127.5).sub_(1.0)


class Encoder(nn.Module):
    def __init__(self, embedding):
        super().__init__()
        widths = [3, 24, 48, 96]
        self.features = nn.Sequential(
            *[
                nn.Sequential(nn.Conv2d(a, b, 3, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True))
                for a, b in zip(widths, widths[1:])
            ]
        )
        self.head = nn.Linear(widths[-1], embedding)

    def forward(self, x):
        return F.normalize(self.head(self.features(x).mean((2, 3))), dim=1)


class ProxyAnchor(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.proxies = nn.Parameter(torch.randn(s.glazes, s.embedding))
        self.margin, self.alpha = s.margin, s.alpha

    def forward(self, embedded, labels):
        similarity = embedded @ F.normalize(self.proxies, dim=1).T
        positive = F.one_hot(labels, len(self.proxies)).bool()
        pull = (-self.alpha * (similarity - self.margin)).masked_fill(~positive, -torch.inf)
        push = (self.alpha * (similarity + self.margin)).masked_fill(positive, -torch.inf)
        zero = similarity.new_zeros(1, similarity.shape[1])
        pulled = torch.cat([pull, zero]).logsumexp(0).sum() / positive.any(0).sum()
        return pulled + torch.cat([push, zero]).logsumexp(0).mean()


@torch.no_grad()
def recall_at_one(encoder, pots, labels):
    encoder.eval()
    embedded = torch.cat([encoder(chunk.float().div_(127.5).sub_(1.0)) for chunk in pots.split(240)])
    encoder.train()
    nearest = (embedded @ embedded.T).fill_diagonal_(-1.0).argmax(1)
    return (labels[nearest] == labels).float().mean().item()


def main():
    s = Settings()
    torch.manual_seed(0)
    pots, labels = fire_pots(s)
    encoder, criterion = Encoder(s.embedding), ProxyAnchor(s)
    optimizer = torch.optim.AdamW(
        [{"params": encoder.parameters()}, {"params": criterion.parameters(), "lr": 20 * s.lr}], lr=s.lr, fused=True
    )
    for epoch in range(s.epochs):
        total = torch.zeros(())
        batches = torch.randperm(len(pots)).split(s.batch)
        for picked in batches:
            loss = criterion(encoder(augment(pots[picked])), labels[picked])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch} loss {(total / len(batches)).item():.3f}")
    print(f"recall@1 {recall_at_one(encoder, pots[::4], labels[::4]):.3f}")


if __name__ == "__main__":
    main()
