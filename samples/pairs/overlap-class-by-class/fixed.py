"""Layers of rock in seismic sections: a small network labels each point, and each step reports the overlap by layer."""

import torch
from torch import nn
from torch.nn import functional as F

LAYERS, SIZE, BATCH, STEPS = 16, 96, 16, 120


class Overlap:
    """Points that are predicted and true, and that are either, of each layer."""

    def __init__(self):
        self.both, self.either = torch.zeros(LAYERS), torch.zeros(LAYERS)

    def add(self, guess, truth):
        pairs = torch.bincount((LAYERS * truth + guess).flatten(), minlength=LAYERS**2).view(LAYERS, LAYERS)
        both = pairs.diag()
        self.both += both
        self.either += pairs.sum(0) + pairs.sum(1) - both

    def mean(self):
        return (self.both / self.either.clamp(min=1)).mean().item()


def sections(count):
    """Folded layers under noise."""
    across = torch.linspace(0, 6.3, SIZE)
    folds = torch.rand(count, 1, 1) * torch.sin(across + 6 * torch.rand(count, 1, 1))
    depth = torch.linspace(0, LAYERS - 1, SIZE)[:, None] + 2 * folds
    truth = depth.round().long().clamp(0, LAYERS - 1)
    return torch.sin(truth * 1.7)[:, None] + 0.3 * torch.randn(count, 1, SIZE, SIZE), truth


def main():
    torch.manual_seed(5)
    waves, truth = sections(160)
    model = nn.Sequential(
        nn.Conv2d(1, 12, 5, padding=2), nn.ReLU(), nn.Conv2d(12, 12, 5, padding=2), nn.ReLU(), nn.Conv2d(12, LAYERS, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
    overlap = Overlap()
    for step in range(STEPS):
        rows = torch.randint(len(waves), (BATCH,))
        scores = model(waves[rows])
        loss = F.cross_entropy(scores, truth[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        overlap.add(scores.detach().argmax(1), truth[rows])
        if step % 40 == 39:
            print(f"step {step}: loss {loss.item():.3f}, overlap {overlap.mean():.3f}")
            overlap = Overlap()


if __name__ == "__main__":
    main()
