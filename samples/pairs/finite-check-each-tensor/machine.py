"""Histories of a machine, and a network of gated layers that predicts its next event."""

import torch
from torch import nn

KINDS, PAST = 40, 12


def histories(count):
    """(the last events, the one that follows): events repeat with a period of their own, now and then at random."""
    period = torch.randint(2, 6, (count, 1))
    start = torch.randint(0, KINDS, (count, 1))
    events = (start + torch.arange(PAST + 1) % period) % KINDS
    return events[:, :PAST], events[:, PAST]


class Gated(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.value, self.gate, self.out = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x):
        y = self.norm(x)
        return x + self.out(self.value(y) * torch.sigmoid(self.gate(y)))


class Network(nn.Module):
    def __init__(self, blocks, width=96):
        super().__init__()
        self.event = nn.Embedding(KINDS, 16)
        self.enter = nn.Linear(16 * PAST, width)
        self.blocks = nn.Sequential(*[Gated(width) for _ in range(blocks)])
        self.head = nn.Linear(width, KINDS)

    def forward(self, events):
        return self.head(self.blocks(self.enter(self.event(events).flatten(1))))
