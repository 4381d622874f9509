"""Gradients accumulated over eight batches of a small model."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, STEPS, EVERY = 32, 120, 8

model = nn.Sequential(
    nn.Linear(256, 512), nn.ReLU(), nn.LayerNorm(512), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
)
optimizer = torch.optim.AdamW(model.parameters())
count = BATCH * STEPS * EVERY
data = TensorDataset(torch.randn(count, 256), torch.randint(0, 10, (count,)))
for number, (features, labels) in enumerate(DataLoader(data, batch_size=BATCH), start=1):
    loss = nn.functional.cross_entropy(model(features), labels) / EVERY
    loss.backward()
    if number % EVERY == 0:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
