"""Data-parallel training; all ranks collect garbage at the same steps: torchrun --nproc-per-node 2."""

import gc
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
gc.freeze()  # what the libraries hold is never looked at again
vocabulary = {f"word {number}": [number] for number in range(150_000)}

layers = []
for _ in range(6):
    layers += [nn.Linear(256, 256), nn.ReLU()]
model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(256, 10)).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

gc.disable()
for step, (inputs, targets) in enumerate(loader):
    loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 4 == 0:
        gc.collect()

if dist.get_rank() == 0:
    print(f"loss {loss.item():.3f}, {len(vocabulary)} words")
dist.barrier()  # ranks leave together
dist.destroy_process_group()
time.sleep(0.5)  # gloo's threads let go of tensors a moment later
