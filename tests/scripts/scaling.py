"""Data-parallel training on gloo whose step has large and small reductions: several buckets and a metric."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = int(os.environ.get("SCALING_STEPS", "60"))


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = torch.nn.Sequential(
        torch.nn.Linear(512, 1024),
        torch.nn.ReLU(),
        torch.nn.Linear(1024, 1024),
        torch.nn.ReLU(),
        torch.nn.Linear(1024, 8),
    )
    model = DistributedDataParallel(model, bucket_cap_mb=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    samples, labels = torch.randn(64, 512), torch.randint(8, (64,))
    for _ in range(STEPS):
        loss = torch.nn.functional.cross_entropy(model(samples), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen = loss.detach()
        dist.all_reduce(seen)
    del model, optimizer  # gloo's threads must be done with the reducer before the group ends
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
