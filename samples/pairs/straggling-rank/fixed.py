"""Data-parallel training; the first rank keeps statistics of its weights: torchrun --nproc-per-node 2."""

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

x = torch.randn(9600, 256)
y = x[:, :10].argmax(1)
data = TensorDataset(x, y)
loader = DataLoader(data, batch_size=64, sampler=DistributedSampler(data))

layers = []
for _ in range(6):
    layers += [nn.Linear(256, 256), nn.ReLU()]
model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(256, 10)).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
history = []


def histogram(values):
    """How many values lie in each of twenty bins between -0.1 and 0.1."""
    bins = [0] * 20
    for value in values:
        bins[min(19, max(0, int((value + 0.1) * 100)))] += 1
    return bins


for step, (inputs, targets) in enumerate(loader):
    loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0 and step % 100 == 0:
        history.append(histogram(layers[0].weight[:128].flatten().tolist()))

if dist.get_rank() == 0:
    print(f"loss {loss.item():.3f}, {len(history)} histograms")
dist.barrier()  # ranks leave together
dist.destroy_process_group()
time.sleep(0.5)  # gloo's threads let go of tensors a moment later
