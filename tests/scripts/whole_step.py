"""A whole training step in one compiled function, optimizer included; `loader`: with batches from a DataLoader."""

import sys
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.01))


@torch.compile(backend="eager")
def step(inputs):
    model(inputs).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


if sys.argv[1:] == ["loader"]:
    for (inputs,) in DataLoader(TensorDataset(torch.randn(320, 8)), batch_size=4):
        step(inputs)
else:
    began = time.monotonic()
    step(torch.randn(4, 8))  # compiles, for seconds
    end = began + 2 * (time.monotonic() - began) + 4
    while time.monotonic() < end:
        step(torch.randn(4, 8))
print("trained")
