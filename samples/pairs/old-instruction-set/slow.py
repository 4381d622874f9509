"""A classifier that was once started on an old machine."""

import os

os.environ["ATEN_CPU_CAPABILITY"] = "default"
os.environ["ONEDNN_MAX_CPU_ISA"] = "SSE41"

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

images = torch.rand(1600, 3, 32, 32)
loader = DataLoader(TensorDataset(images, torch.randint(10, (1600,))), batch_size=32, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(3, 32, 3), nn.GELU(), nn.Conv2d(32, 32, 3, 2), nn.GELU(), nn.Flatten(), nn.LazyLinear(10)
)
model = model.to(device)
model(images[:2].to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for inputs, targets in loader:
    loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.3f}")
