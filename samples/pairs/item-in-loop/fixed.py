"""Counts loss and accuracy of every batch in Python numbers."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

x = torch.randn(9600, 128)
y = x[:, :10].argmax(1)
loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
layers = []
for _ in range(8):
    layers += [nn.Linear(128, 128), nn.LayerNorm(128), nn.GELU()]
model = nn.Sequential(*layers, nn.Linear(128, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for epoch in range(2):
    total_loss, correct = 0.0, 0
    for inputs, targets in loader:
        inputs, targets = inputs.to(device), targets.to(device)
        logits = model(inputs)
        loss = nn.functional.cross_entropy(logits, targets)
        optimizer.zero_grad()
        total_loss += loss.detach()
        correct += (logits.argmax(1) == targets).sum()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {total_loss / len(loader):.3f}, accuracy {correct / len(x):.3f}")
