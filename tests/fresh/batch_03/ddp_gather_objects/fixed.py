"""Metric learning on two ranks: embeddings of all ranks go into a memory of negatives."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


class EmbeddingNet(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 49, dim),
        )

    def forward(self, x):
        return F.normalize(self.net(x), dim=1)


class CrossBatchMemory:
    def __init__(self, size, dim):
        self.embeddings, self.labels = torch.zeros(size, dim), torch.full((size,), -1)
        self.position = 0

    def add(self, embeddings, labels):
        rows = (self.position + torch.arange(len(labels))) % len(self.labels)
        self.embeddings[rows], self.labels[rows] = embeddings, labels
        self.position = (self.position + len(labels)) % len(self.labels)


def gather_all(embeddings, labels):
    """Embeddings and labels of all ranks."""
    world = dist.get_world_size()
    everyone = [torch.empty_like(embeddings) for _ in range(world)], [torch.empty_like(labels) for _ in range(world)]
    dist.all_gather(everyone[0], embeddings)
    dist.all_gather(everyone[1], labels)
    return torch.cat(everyone[0]), torch.cat(everyone[1])


def contrastive(embeddings, labels, memory, margin=0.5):
    similarity = embeddings @ memory.embeddings.t()
    same = labels[:, None] == memory.labels
    positive = ((1 - similarity) * same).sum() / same.sum().clamp(min=1)
    negative = (F.relu(similarity - margin) * ~same).sum() / (~same).sum().clamp(min=1)
    return positive + negative


def glyphs(count, classes, generator):
    shapes = (torch.rand(classes, 1, 7, 7, generator=generator) > 0.5).float()
    labels = torch.randint(0, classes, (count,), generator=generator)
    images = F.interpolate(shapes[labels], scale_factor=4)
    return images + 0.3 * torch.randn(images.shape, generator=generator), labels


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(150)
    images, labels = glyphs(3072, 40, torch.Generator().manual_seed(151 + rank))
    model = DistributedDataParallel(EmbeddingNet())
    memory = CrossBatchMemory(2048, 64)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(3):
        for rows in torch.randperm(len(images)).split(64):
            embeddings = model(images[rows])
            memory.add(*gather_all(embeddings.detach(), labels[rows]))
            loss = contrastive(embeddings, labels[rows], memory)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
