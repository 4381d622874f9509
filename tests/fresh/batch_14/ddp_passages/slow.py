"""Retrieval of passages with late interaction, in-batch negatives from all ranks. Started by torchrun."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.nn.functional import all_gather
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class PairDataset(Dataset):
    """Queries made of words of the passage that answers them."""

    def __init__(self, count, vocabulary, query_length, passage_length, seed):
        generator = torch.Generator().manual_seed(seed)
        self.passages = torch.randint(1, vocabulary, (count, passage_length), generator=generator)
        chosen = torch.randint(passage_length, (count, query_length), generator=generator)
        self.queries = self.passages.gather(1, chosen)
        noise = torch.rand(self.queries.shape, generator=generator) < 0.2
        other = torch.randint(1, vocabulary, self.queries.shape, generator=generator)
        self.queries = torch.where(noise, other, self.queries)

    def __len__(self):
        return len(self.queries)

    def __getitem__(self, index):
        return self.queries[index], self.passages[index]


class TokenEncoder(nn.Module):
    def __init__(self, vocabulary, dim=64, outputs=48):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, dim)
        self.mix = nn.Conv1d(dim, dim, 3, padding=1)
        self.norm = nn.LayerNorm(dim)
        self.output = nn.Linear(dim, outputs, bias=False)

    def forward(self, queries, passages):
        return self.encode(queries), self.encode(passages)

    def encode(self, tokens):
        x = self.embedding(tokens)
        x = self.norm(x + F.gelu(self.mix(x.transpose(1, 2)).transpose(1, 2)))
        return F.normalize(self.output(x), dim=2)


def max_similarity(queries, passages):
    """For each query and passage the sum over the query's tokens of their best match."""
    scores = torch.einsum("qid,pjd->qpij", queries, passages)
    return scores.amax(dim=3).sum(dim=2)


class InBatchLoss(nn.Module):
    def __init__(self, rank, world_size, temperature=0.5):
        super().__init__()
        self.rank = rank
        self.world_size = world_size
        self.temperature = temperature

    def forward(self, queries, passages):
        local = len(queries)
        queries = torch.cat(all_gather(queries))
        passages = torch.cat(all_gather(passages))
        targets = torch.arange(len(queries))
        scores = max_similarity(queries, passages) / self.temperature
        return F.cross_entropy(scores, targets) * local / len(targets) * self.world_size


@torch.no_grad()
def recall(encoder, dataset, at=5, count=128):
    queries, passages = encoder.encode(dataset.queries[:count]), encoder.encode(dataset.passages[:count])
    top = max_similarity(queries, passages).topk(at, dim=1).indices
    return (top == torch.arange(count)[:, None]).any(dim=1).float().mean().item()


def train(args):
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(args.seed)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // world_size))
    dataset = PairDataset(args.pairs, args.vocabulary, 12, 48, args.seed)
    held_out = PairDataset(256, args.vocabulary, 12, 48, args.seed + 1)
    sampler = DistributedSampler(dataset, seed=args.seed, drop_last=True)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    encoder = TokenEncoder(args.vocabulary)
    model = DistributedDataParallel(encoder)
    criterion = InBatchLoss(rank, world_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    step = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for queries, passages in loader:
            loss = criterion(*model(queries, passages))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 50 == 0 and rank == 0:
                print(f"step {step}: loss {loss.item():.4f}")
        if rank == 0:
            print(f"epoch {epoch}: recall at 5 {recall(encoder, held_out):.3f}")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=4096)
    parser.add_argument("--vocabulary", type=int, default=2000)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    train(parser.parse_args())
