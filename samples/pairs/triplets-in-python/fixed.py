"""Metric learning: the hardest positive and negative of each sample make the triplet loss."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

x = torch.randn(3200, 100)
labels = torch.arange(3200) % 8
loader = DataLoader(TensorDataset(x, labels), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(100, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 32)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for step, (inputs, classes) in enumerate(loader):
    embedded = model(inputs.to(device))
    distances = torch.cdist(embedded, embedded)
    classes = classes.to(device)

    same = classes[:, None] == classes[None]
    positive = distances.masked_fill(~same, 0).amax(1)
    negative = distances.masked_fill(same, torch.inf).amin(1)

    loss = (positive - negative + 0.3).relu().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}: loss {loss.item():.3f}")
