"""Data-parallel training with gradients accumulated over 8 batches: torchrun --nproc-per-node 2."""

import contextlib
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
accumulation = 8

x = torch.randn(2560, 512)
data = TensorDataset(x, x.roll(1, 1))
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 512))
model = DistributedDataParallel(model.to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for step, (inputs, targets) in enumerate(loader):
    last = (step + 1) % accumulation == 0
    with contextlib.nullcontext() if last else model.no_sync():
        loss = nn.functional.mse_loss(model(inputs.to(device)), targets.to(device)) / accumulation
        loss.backward()
    if last:
        optimizer.step()
        optimizer.zero_grad()

if dist.get_rank() == 0:
    print(f"loss {loss.item() * accumulation:.3f}")
dist.barrier()  # ranks leave together
dist.destroy_process_group()
time.sleep(0.5)  # gloo's threads let go of tensors a moment later
