"""A wide network whose time goes into matrix products."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

x = torch.randn(12_800, 1024)
y = x[:, :10].argmax(1)
loader = DataLoader(TensorDataset(x, y), batch_size=512, shuffle=True)
model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)).to(
    device
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for epoch in range(4):
    for inputs, targets in loader:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=False):
            loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
