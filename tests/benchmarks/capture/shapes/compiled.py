"""A model under torch.compile."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, STEPS = 64, 300

model = nn.Sequential(
    nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 256), nn.GELU(), nn.Linear(256, 10)
)
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters())
data = TensorDataset(torch.randn(BATCH * STEPS, 256), torch.randint(0, 10, (BATCH * STEPS,)))
for features, labels in DataLoader(data, batch_size=BATCH):
    optimizer.zero_grad()
    nn.functional.cross_entropy(compiled(features), labels).backward()
    optimizer.step()
