"""DistributedDataParallel on two processes (gloo)."""

import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

distributed.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(6400, 256), torch.randint(0, 10, (6400,)))
sampler = DistributedSampler(data)
model = nn.parallel.DistributedDataParallel(
    nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(3):
    sampler.set_epoch(epoch)
    for features, labels in DataLoader(data, batch_size=64, sampler=sampler):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(features), labels).backward()
        optimizer.step()
distributed.destroy_process_group()
