"""Two gloo ranks on the CPU, of which rank 1 is late: by `sleep` before each step, or by `data`, longer batches."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(0)
late = dist.get_rank() == 1
width = 1024
rows = 40 * (1024 if late and sys.argv[1] == "data" else 128)
data = TensorDataset(torch.randn(2 * rows, width), torch.randn(2 * rows, 1))
loader = DataLoader(data, batch_size=rows // 40, sampler=DistributedSampler(data))
model = DistributedDataParallel(nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for inputs, labels in loader:
    if late and sys.argv[1] == "sleep":
        time.sleep(0.05)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), labels).backward()
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
time.sleep(0.5)  # gloo's threads let go of a collective's tensors a moment after it has returned
