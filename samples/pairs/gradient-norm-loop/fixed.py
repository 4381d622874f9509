"""A deep, narrow network; the gradient norm is watched and clipped by hand."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

x = torch.randn(6400, 64)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True).sin()), batch_size=32, shuffle=True)

layers = [nn.Linear(64, 64), nn.LayerNorm(64), nn.Tanh()]
for _ in range(20):
    layers += [nn.Linear(64, 64), nn.LayerNorm(64), nn.Tanh()]
model = nn.Sequential(*layers, nn.Linear(64, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for step, (inputs, targets) in enumerate(loader):
    loss = nn.functional.mse_loss(model(inputs.to(device)), targets.to(device))
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}: loss {loss.item():.4f}, gradient norm {norm:.3f}")
