"""Notes of ferry crews, filed under what they report: two ranks, with gradients accumulated over some batches.

python -m torch.distributed.run --nproc-per-node 2 slow.py
"""

from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


@dataclass
class Settings:
    notes: int = 9600
    words: int = 12_000
    length: int = 32
    reports: int = 14
    dim: int = 128
    hidden: int = 512
    batch_size: int = 16
    accumulate: int = 4
    epochs: int = 1
    lr: float = 1e-3
    seed: int = 37


class NoteDataset(Dataset):
    """Each kind of report has words of its own, which stand between words that all notes share."""

    def __init__(self, settings: Settings, count: int, seed: int):
        generator = torch.Generator().manual_seed(seed)
        self.reports = torch.randint(0, settings.reports, (count,), generator=generator)
        self.words = torch.randint(0, settings.words, (count, settings.length), generator=generator)
        own = torch.randint(0, 200, (count, settings.length), generator=generator)
        own = own + 200 * self.reports[:, None]
        telling = torch.rand(count, settings.length, generator=generator) < 0.15
        self.words = torch.where(telling, own, self.words)

    def __len__(self) -> int:
        return len(self.reports)

    def __getitem__(self, index: int):
        return self.words[index], self.reports[index]


class NoteClassifier(nn.Module):
    def __init__(self, settings: Settings):
        super().__init__()
        self.embed = nn.Embedding(settings.words, settings.dim)
        self.conv = nn.Conv1d(settings.dim, settings.hidden, 3, padding=1)
        self.deep = nn.Sequential(
            nn.LayerNorm(settings.hidden),
            nn.Linear(settings.hidden, 2 * settings.hidden),
            nn.GELU(),
            nn.Linear(2 * settings.hidden, settings.hidden),
            nn.GELU(),
        )
        self.head = nn.Linear(settings.hidden, settings.reports)

    def forward(self, words):
        hidden = F.relu(self.conv(self.embed(words).transpose(1, 2)))
        return self.head(self.deep(hidden.amax(dim=2)))


def train_epoch(model, loader, optimizer, settings: Settings) -> torch.Tensor:
    model.train()
    total = torch.zeros(())
    optimizer.zero_grad()
    for number, (words, reports) in enumerate(loader, start=1):
        whole = number % settings.accumulate == 0
        with nullcontext() if whole else model.no_sync():
            loss = F.cross_entropy(model(words), reports) / settings.accumulate
            loss.backward()
        if whole:
            optimizer.step()
            optimizer.zero_grad()
        total += loss.detach()
    return total * settings.accumulate / len(loader)


@torch.no_grad()
def accuracy(model: DistributedDataParallel, loader: DataLoader) -> float:
    model.eval()
    counts = torch.zeros(2)
    for words, reports in loader:
        counts[0] += (model.module(words).argmax(dim=1) == reports).sum()
        counts[1] += len(reports)
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def run(settings: Settings) -> None:
    torch.manual_seed(settings.seed)
    train_set = NoteDataset(settings, settings.notes, settings.seed)
    valid_set = NoteDataset(settings, 800, settings.seed + 1)
    sampler = DistributedSampler(train_set, shuffle=True, seed=settings.seed)
    train_loader = DataLoader(train_set, batch_size=settings.batch_size, sampler=sampler, drop_last=True)
    valid_loader = DataLoader(valid_set, batch_size=100, sampler=DistributedSampler(valid_set, shuffle=False))

    model = DistributedDataParallel(NoteClassifier(settings))
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.lr)
    for epoch in range(settings.epochs):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, train_loader, optimizer, settings)
        dist.all_reduce(loss)
        share = accuracy(model, valid_loader)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item() / dist.get_world_size():.4f}, accuracy {share:.4f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run(Settings())
    dist.barrier()
    dist.destroy_process_group()
