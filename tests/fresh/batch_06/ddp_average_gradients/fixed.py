"""Data-parallel training of a text classifier, written with collectives: torchrun --nproc_per_node 2."""

import os
import time
from math import ceil

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

VOCAB, LENGTH, CLASSES = 3000, 32, 8


def make_news(count, seed):
    """Token ids; each class prefers its own part of the vocabulary."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (count,), generator=g)
    own = torch.randint(0, VOCAB // CLASSES, (count, LENGTH), generator=g) + labels[:, None] * (VOCAB // CLASSES)
    other = torch.randint(0, VOCAB, (count, LENGTH), generator=g)
    return TensorDataset(torch.where(torch.rand(count, LENGTH, generator=g) < 0.25, own, other), labels)


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.query, self.key, self.value = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)
        self.fc1, self.fc2 = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def split(self, x):
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)

    def forward(self, x):
        y = self.norm1(x)
        q, k, v = self.split(self.query(y)), self.split(self.key(y)), self.split(self.value(y))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class NewsClassifier(nn.Module):
    def __init__(self, dim=128, heads=4, layers=6):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCAB, dim), nn.Parameter(torch.zeros(LENGTH, dim))
        self.layers = nn.Sequential(*[Layer(dim, heads) for _ in range(layers)])
        self.out = nn.Linear(dim, CLASSES)

    def forward(self, ids):
        return self.out(self.layers(self.words(ids) + self.places).mean(dim=1))


def run(rank, size):
    torch.manual_seed(1234)
    train_set = make_news(4096, seed=1234)
    sampler = DistributedSampler(train_set, num_replicas=size, rank=rank, shuffle=True)
    train_loader = DataLoader(train_set, batch_size=32 // size, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(NewsClassifier())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)
    num_batches = ceil(len(train_set) / 32)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        epoch_loss = torch.zeros(())
        for data, target in train_loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(data), target)
            epoch_loss += loss.detach()
            loss.backward()
            optimizer.step()
        print(f"Rank {rank}, epoch {epoch}: {epoch_loss.item() / num_batches:.4f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run(int(os.environ["RANK"]), dist.get_world_size())
    time.sleep(0.5)  # gloo's threads let go of tensors a moment later
    dist.destroy_process_group()
