"""A regressor that shows how its predictions have drifted since the start."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

x = torch.randn(16000, 64)
loader = DataLoader(TensorDataset(x, x.cumsum(1)), batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 64)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

history = []
for inputs, targets in loader:
    outputs = model(inputs.to(device))
    loss = nn.functional.mse_loss(outputs, targets.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(outputs.detach())
drift = torch.cat(history).std()
print(f"loss {loss.item():.3f}, spread of all predictions {drift.item():.3f}")
