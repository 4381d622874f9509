"""Rare defects on steel sheets: a sampler draws each kind of defect equally often."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Sampler, TensorDataset

torch.manual_seed(0)
np.random.seed(0)
KINDS, PIXELS = 6, 32


class Balanced(Sampler):
    """`draws` indices, with a chance that is inverse to how frequent their label is."""

    def __init__(self, labels, draws):
        weight = 1.0 / np.bincount(labels)[labels]
        self.chance = weight / weight.sum()
        self.draws = draws

    def __len__(self):
        return self.draws

    def __iter__(self):
        yield from np.random.choice(len(self.chance), self.draws, p=self.chance).tolist()


class Whole(TensorDataset):
    """Fetches all samples of a batch at once."""

    def __getitems__(self, indices):
        return [tensor[indices] for tensor in self.tensors]


def sheets(count):
    labels = torch.from_numpy(np.random.choice(KINDS, count, p=[0.75, 0.12, 0.06, 0.04, 0.02, 0.01]))
    stripes = torch.rand(KINDS, 1, PIXELS, PIXELS)
    return stripes[labels] + 0.3 * torch.randn(count, 1, PIXELS, PIXELS), labels


def block(inner, outer):
    return nn.Sequential(nn.Conv2d(inner, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.ReLU(), nn.MaxPool2d(2))


pictures, labels = sheets(20_000)
batches = BatchSampler(Balanced(labels.numpy(), 120 * 32), batch_size=32, drop_last=True)
loader = DataLoader(Whole(pictures, labels), batch_sampler=batches, collate_fn=lambda batch: batch)
model = nn.Sequential(block(1, 16), block(16, 32), block(32, 32), nn.Flatten(), nn.Linear(32 * 16, KINDS))
optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, nesterov=True, fused=True)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(batches))
hits = torch.zeros(KINDS)
for step, (x, y) in enumerate(loader, 1):
    scores = model(x)
    loss = nn.functional.cross_entropy(scores, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    hits.index_add_(0, y, (scores.argmax(1) == y).float())
    if step % 30 == 0:
        print(f"{step:4d} loss {loss.item():.4f} hits {hits.int().tolist()}")
