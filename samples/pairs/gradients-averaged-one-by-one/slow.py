"""Data-parallel training as in the tutorial on distributed programs: torchrun --nproc-per-node 2."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

USE_CUDA = torch.cuda.is_available()


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return x + torch.relu(self.linear(self.norm(x)))


def particles(count, features=48):
    """Collisions: what was measured of each, and whether something rare was in it."""
    x = torch.randn(count, features)
    return TensorDataset(x, ((x[:, 0] * x[:, 1] + x[:, 2].square()) > 1).float())


def network(features=48, width=96, depth=12):
    return nn.Sequential(nn.Linear(features, width), *(Residual(width) for _ in range(depth)), nn.Linear(width, 1))


def average_gradients(model):
    """Gradient averaging."""
    size = float(dist.get_world_size())
    for param in model.parameters():
        dist.all_reduce(param.grad, op=dist.ReduceOp.SUM)
        param.grad /= size


def run(rank, device):
    torch.manual_seed(1234)
    data = particles(12_800)
    sampler = DistributedSampler(data, shuffle=True, seed=7)
    loader = DataLoader(data, batch_size=64, sampler=sampler)
    model = network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        epoch_loss = 0.0
        for features, rare in loader:
            optimizer.zero_grad()
            output = model(features.to(device)).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(output, rare.to(device))
            epoch_loss += loss.detach()
            loss.backward()
            average_gradients(model)
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: {epoch_loss.item() / len(loader):.4f}")


if __name__ == "__main__":
    dist.init_process_group("nccl" if USE_CUDA else "gloo")
    run(dist.get_rank(), f"cuda:{os.environ['LOCAL_RANK']}" if USE_CUDA else "cpu")
    dist.barrier()  # ranks leave together
    dist.destroy_process_group()
    time.sleep(0.5)  # gloo's threads let go of tensors a moment later
