"""A contrastive loss that walks the samples of a batch, and the others of each, in Python."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, STEPS = 48, 60

model = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 32))
optimizer = torch.optim.Adam(model.parameters())
data = TensorDataset(torch.randn(BATCH * STEPS, 128), torch.arange(BATCH * STEPS) % 6)


def contrastive(embeddings, labels, margin=1.0):
    total = embeddings.new_zeros(())
    for i in range(len(embeddings)):
        for j in range(i + 1, len(embeddings)):
            distance = (embeddings[i] - embeddings[j]).pow(2).sum()
            if labels[i] == labels[j]:
                total = total + distance
            else:
                total = total + torch.clamp(margin - distance, min=0)
    return total / len(embeddings)


for features, labels in DataLoader(data, batch_size=BATCH, shuffle=True):
    optimizer.zero_grad()
    contrastive(model(features), labels).backward()
    optimizer.step()
