"""Data-parallel training of a deep, narrow network: torchrun --nproc-per-node 2."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

use_cuda = torch.cuda.is_available()
dist.init_process_group("nccl" if use_cuda else "gloo")
device = f"cuda:{os.environ['LOCAL_RANK']}" if use_cuda else "cpu"
torch.manual_seed(0)

x = torch.randn(6400, 64)
y = x.argmax(1)
data = TensorDataset(x, y)
loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data))

layers = []
for _ in range(30):
    layers += [nn.Linear(64, 64), nn.LayerNorm(64), nn.ReLU()]
model = DistributedDataParallel(nn.Sequential(*layers).to(device), find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for inputs, targets in loader:
    loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

if dist.get_rank() == 0:
    print(f"loss {loss.item():.3f}")
dist.barrier()  # ranks leave together
dist.destroy_process_group()
time.sleep(0.5)  # gloo's threads let go of tensors a moment later
