"""Which sea a ship's log was written on: a text classifier on two ranks, started by torchrun."""

import argparse
import contextlib
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SEAS = 12


class LogBook(Dataset):
    """Entries as token ids; every sea has words of its own among those that all logs share."""

    def __init__(self, entries, vocabulary, length, seed):
        generator = torch.Generator().manual_seed(seed)
        self.seas = torch.randint(SEAS, (entries,), generator=generator)
        common = torch.randint(1, vocabulary, (entries, length), generator=generator)
        own = vocabulary // SEAS * self.seas.unsqueeze(1)
        own = own + torch.randint(1, 60, (entries, length), generator=generator)
        special = torch.rand(entries, length, generator=generator) < 0.15
        self.tokens = torch.where(special, own, common)

    def __len__(self):
        return len(self.seas)

    def __getitem__(self, index):
        return self.tokens[index], self.seas[index]


class LogClassifier(nn.Module):
    def __init__(self, vocabulary, width, kernel_sizes=(2, 3, 4)):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.convolutions = nn.ModuleList(nn.Conv1d(width, width, size) for size in kernel_sizes)
        self.hidden = nn.Linear(width * len(kernel_sizes), 2 * width)
        self.output = nn.Linear(2 * width, SEAS)

    def forward(self, tokens):
        embedded = self.embedding(tokens).transpose(1, 2)
        pooled = [F.relu(convolution(embedded)).amax(dim=2) for convolution in self.convolutions]
        return self.output(F.relu(self.hidden(torch.cat(pooled, dim=1))))


class Trainer:
    def __init__(self, args):
        self.args = args
        self.rank = dist.get_rank()
        torch.manual_seed(args.seed)
        self.model = DistributedDataParallel(LogClassifier(args.vocabulary, args.width))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr, fused=True)
        book = LogBook(args.entries, args.vocabulary, args.length, args.seed)
        self.sampler = DistributedSampler(book, shuffle=True, drop_last=True)
        self.loader = DataLoader(book, batch_size=args.micro_batch, sampler=self.sampler, drop_last=True)

    def backward(self, tokens, seas):
        loss = F.cross_entropy(self.model(tokens), seas) / self.args.accumulate
        loss.backward()
        return loss.detach()

    def train_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        total, updates = torch.zeros(()), 0
        for index, (tokens, seas) in enumerate(self.loader, start=1):
            last = index % self.args.accumulate == 0
            with contextlib.nullcontext() if last else self.model.no_sync():
                total += self.backward(tokens, seas)
            if last:
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
                updates += 1
        dist.all_reduce(total)
        if self.rank == 0:
            print(f"epoch {epoch}: loss {total.item() / dist.get_world_size() / updates:.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--entries", type=int, default=5120)
    parser.add_argument("--vocabulary", type=int, default=12000)
    parser.add_argument("--length", type=int, default=48)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--micro-batch", type=int, default=32)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=19)
    args = parser.parse_args()

    dist.init_process_group("gloo", world_size=int(os.environ["WORLD_SIZE"]), rank=int(os.environ["RANK"]))
    try:
        trainer = Trainer(args)
        for epoch in range(args.epochs):
            trainer.train_epoch(epoch)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
