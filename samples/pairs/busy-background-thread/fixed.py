"""A trainer with a progress display in a thread of its own."""

import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

progress = {"step": 0, "done": False}


def display():
    shown = 0
    while not progress["done"]:
        if progress["step"] >= shown + 50:
            shown = progress["step"]
            print(f"step {shown}")
        time.sleep(0.05)


x = torch.randn(4800, 64)
loader = DataLoader(TensorDataset(x, x.cumsum(1)), batch_size=32, shuffle=True)
layers = []
for _ in range(10):
    layers += [nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()]
model = nn.Sequential(*layers).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

thread = threading.Thread(target=display)
thread.start()
for inputs, targets in loader:
    loss = nn.functional.mse_loss(model(inputs.to(device)), targets.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    progress["step"] += 1
progress["done"] = True
thread.join()
print(f"loss {loss.item():.3f}")
