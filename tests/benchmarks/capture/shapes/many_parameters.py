"""A thousand small parameters under torch's own AdamW, their gradients clipped and their average kept."""

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, STEPS, BRANCHES = 16, 60, 500


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(16, 16) for _ in range(BRANCHES))

    def forward(self, features):
        return torch.stack([branch(features).relu() for branch in self.branches]).mean(0)


model = Branches()
average = copy.deepcopy(model)
optimizer = torch.optim.AdamW(model.parameters())
data = TensorDataset(torch.randn(BATCH * STEPS, 16), torch.randn(BATCH * STEPS, 16))
for features, wanted in DataLoader(data, batch_size=BATCH):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(features), wanted).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    with torch.no_grad():
        for kept, current in zip(average.parameters(), model.parameters(), strict=True):
            kept.mul_(0.99).add_(current, alpha=0.01)
