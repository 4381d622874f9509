"""Sounds of machines: branches of filters on the same signal, added up after their activation."""

import torch
from torch import nn

torch.manual_seed(0)
BRANCHES, CHANNELS, LENGTH, BATCH = 12, 8, 128, 16

count = 2_000
signals = torch.randn(count, 4, LENGTH).cumsum(2)
signals = signals / signals.std(2, keepdim=True)
kinds = (signals[:, 0, -1] > signals[:, 1, -1]).long()


class Filters(nn.Module):
    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList(nn.Conv1d(4, CHANNELS, 5) for _ in range(BRANCHES))

    def forward(self, x):
        total = 0.0
        for branch in self.branches:
            total = total + torch.tanh(branch(x))
        return total / BRANCHES


model = nn.Sequential(Filters(), nn.AvgPool1d(4), nn.Flatten(), nn.Linear(CHANNELS * 31, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def train_step():
    rows = torch.randint(count, (BATCH,))
    loss = nn.functional.cross_entropy(model(signals[rows]), kinds[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


for step in range(600):
    loss = train_step()
    if step % 100 == 0:
        print(f"step {step}: loss {loss.item():.4f}")
