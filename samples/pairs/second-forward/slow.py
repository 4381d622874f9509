"""A classifier that reports its training accuracy along the way."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

x = torch.randn(6400, 256)
y = x[:, :10].argmax(1)
loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)

model = nn.Sequential(
    nn.Linear(256, 1024),
    nn.GELU(),
    nn.Linear(1024, 1024),
    nn.GELU(),
    nn.Linear(1024, 1024),
    nn.GELU(),
    nn.Linear(1024, 10),
).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for epoch in range(2):
    correct = 0
    for inputs, targets in loader:
        inputs, targets = inputs.to(device), targets.to(device)
        logits = model(inputs)
        loss = nn.functional.cross_entropy(logits, targets)
        optimizer.zero_grad()
        loss.backward()
        correct += (model(inputs).argmax(1) == targets).sum()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {correct.item() / len(x):.3f}")
