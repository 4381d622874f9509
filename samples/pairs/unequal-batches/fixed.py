"""Data-parallel training on sentences of different length: torchrun --nproc-per-node 2."""

import os
import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

use_cuda = torch.cuda.is_available()
dist.init_process_group("nccl" if use_cuda else "gloo")
device = f"cuda:{os.environ['LOCAL_RANK']}" if use_cuda else "cpu"
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

draw = random.Random(0)
sentences = [torch.randint(0, 1000, (draw.randint(8, 136),)) for _ in range(2400)]
order = sorted(range(len(sentences)), key=lambda index: len(sentences[index]))
# Each group of batches holds sentences of about one length, and each rank takes one batch of it.
whole = 16 * world
groups = [order[start : start + whole] for start in range(0, len(order) - whole + 1, whole)]
random.Random(1).shuffle(groups)
batches = [group[rank::world] for group in groups]
loader = DataLoader(sentences, batch_sampler=batches, collate_fn=lambda part: pad_sequence(part, batch_first=True))

network = nn.Sequential(nn.Embedding(1000, 128), nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 1000))
model = DistributedDataParallel(network.to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for tokens in loader:
    tokens = tokens.to(device)
    logits = model(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

if rank == 0:
    print(f"loss {loss.item():.3f}")
dist.barrier()  # ranks leave together
dist.destroy_process_group()
time.sleep(0.5)  # gloo's threads let go of tensors a moment later
