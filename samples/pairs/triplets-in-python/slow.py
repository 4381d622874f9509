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

    hardest_positive, hardest_negative = [], []
    for i, row in enumerate(distances.tolist()):
        same = [j for j in range(len(row)) if classes[j] == classes[i]]
        other = [j for j in range(len(row)) if classes[j] != classes[i]]
        hardest_positive.append(max(same, key=lambda j, row=row: row[j]))
        hardest_negative.append(min(other, key=lambda j, row=row: row[j]))
    rows = torch.arange(len(distances), device=device)
    positive, negative = distances[rows, hardest_positive], distances[rows, hardest_negative]

    loss = (positive - negative + 0.3).relu().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}: loss {loss.item():.3f}")
