"""Prints how long its steps take."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

x = torch.randn(6400, 128)
loader = DataLoader(TensorDataset(x, x.flip(1)), batch_size=64, shuffle=True)
layers = []
for _ in range(8):
    layers += [nn.Linear(128, 128), nn.LayerNorm(128), nn.GELU()]
model = nn.Sequential(*layers).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
timed_each_step = torch.cuda.is_available()

start = time.perf_counter()
for step, (inputs, targets) in enumerate(loader):
    loss = nn.functional.mse_loss(model(inputs.to(device)), targets.to(device))
    if timed_each_step:
        torch.cuda.synchronize()
    optimizer.zero_grad()
    loss.backward()
    if timed_each_step:
        torch.cuda.synchronize()
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step}: loss {loss.item():.3f}, {(time.perf_counter() - start) / 50:.4f} s a step")
        start = time.perf_counter()
