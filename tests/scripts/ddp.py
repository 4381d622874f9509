"""Two or more gloo ranks on the CPU: started by a launcher, or (with `spawn` or `fork`) by torch.multiprocessing."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def train(rank: int = 0, world: int = 0) -> None:
    if world:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(320, 8), torch.randn(320, 1))
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
    model = DistributedDataParallel(nn.Linear(8, 1), bucket_cap_mb=1, find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), labels).backward()
        optimizer.step()
    total = torch.ones(1)
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        print(f"{int(total.item())} ranks trained", flush=True)
    dist.destroy_process_group()
    # gloo's threads let go of a collective's tensors a moment after it has returned. A rank that is gone by then is
    # aborted ("terminate called without an active exception"), with or without anybody who watches it.
    time.sleep(0.2)


if __name__ == "__main__":
    if sys.argv[1:]:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29631")
        torch.multiprocessing.start_processes(train, args=(2,), nprocs=2, start_method=sys.argv[1])
    else:
        train()
