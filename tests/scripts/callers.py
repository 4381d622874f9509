"""Two gloo ranks under DistributedDataParallel; what else they do: healthy | buckets | metric | barrier."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

STEPS, BATCH, WIDTH = 80, 32, 256


def train(kind: str) -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    network = nn.Sequential(*layers, nn.Linear(WIDTH, 10))
    if kind == "buckets":
        model = DistributedDataParallel(network, bucket_cap_mb=0.05)
    else:
        model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    size = 2 * BATCH * STEPS
    data = TensorDataset(torch.randn(size, WIDTH), torch.randint(0, 10, (size,)))
    loader = DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data))
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if kind == "metric":
            for metric in [loss.detach(), *inputs[:20].mean(1)]:
                dist.all_reduce(metric)
        if kind == "barrier":
            dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.5)  # gloo's threads let go of tensors a moment later


if __name__ == "__main__":
    train(sys.argv[1])
