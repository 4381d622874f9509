"""A classifier of sensor windows; the windows of a batch are cut from one long recording."""

import numpy as np
import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

rng = np.random.default_rng(0)
recording = rng.standard_normal((100_000, 6)).astype(np.float32)
events = rng.integers(0, 5, 100_000)
model = nn.Sequential(nn.Flatten(), nn.Linear(128 * 6, 256), nn.ReLU(), nn.Linear(256, 5)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(150):
    starts = rng.integers(0, len(recording) - 128, 64)
    windows = [recording[start : start + 128] for start in starts]
    inputs = torch.from_numpy(np.stack(windows)).to(device)
    targets = torch.from_numpy(events[starts]).to(device)
    loss = nn.functional.cross_entropy(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.3f}")
