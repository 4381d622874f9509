"""Sleep stages from an electroencephalogram; a map of what mattered was once drawn from the gradients of the input."""

from dataclasses import dataclass

import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass
class Config:
    electrodes: int = 64
    samples: int = 384
    stages: int = 5
    batch: int = 16
    rate: float = 1e-3
    epochs: int = 3


def network(cfg):
    """Filters over time and electrodes, then ever coarser features."""
    layers, inner = [], cfg.electrodes
    for outer, stride in ((48, 2), (64, 4), (64, 4)):
        layers += [nn.Conv1d(inner, outer, 15, stride, 7), nn.BatchNorm1d(outer), nn.ELU()]
        inner = outer
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(inner, cfg.stages))


def nights(cfg, count):
    """Each stage has a rhythm of its own, in every electrode with another strength."""
    stage = torch.randint(0, cfg.stages, (count,))
    time = torch.linspace(0, 3, cfg.samples)
    rhythm = (6.283 * (1 + 3 * stage[:, None]) * time).sin()
    strength = 0.3 * torch.randn(cfg.electrodes)
    return rhythm[:, None] * strength[:, None] + torch.randn(count, cfg.electrodes, cfg.samples), stage


def train(cfg):
    waves, stages = (tensor.to(device) for tensor in nights(cfg, 1280))
    model = network(cfg).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.rate, fused=True)
    for epoch in range(cfg.epochs):
        right = 0
        for chosen in torch.randperm(len(waves), device=device).split(cfg.batch):
            scores = model(waves[chosen])
            loss = nn.functional.cross_entropy(scores, stages[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == stages[chosen]).sum()
        print(f"epoch {epoch}: loss {loss.item():.4f}, right {right.item() / len(waves):.3f}")


train(Config())
