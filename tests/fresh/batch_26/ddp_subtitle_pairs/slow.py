"""Subtitles of two languages embedded in one space by two ranks; gradients are gathered over several small batches."""

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@dataclass
class Options:
    pairs: int = 2560
    words: int = 12_000
    length: int = 10
    width: int = 160
    heads: int = 4
    layers: int = 2
    batch_size: int = 8
    accumulate: int = 4
    epochs: int = 3
    temperature: float = 0.07
    lr: float = 5e-4


def subtitle_pairs(options: Options) -> TensorDataset:
    """The second language is the first with other numbers and a few words exchanged."""
    generator = torch.Generator().manual_seed(40)
    half = options.words // 2
    first = torch.randint(1, half, (options.pairs, options.length), generator=generator)
    lengths = torch.randint(6, options.length + 1, (options.pairs, 1), generator=generator)
    first = first.masked_fill(torch.arange(options.length) >= lengths, 0)
    other = torch.randint(1, half, first.shape, generator=generator)
    noise = torch.rand(first.shape, generator=generator) < 0.2
    second = torch.where(first > 0, torch.where(noise, other, first) + half, 0)
    return TensorDataset(first, second)


class SentenceEncoder(nn.Module):
    def __init__(self, options: Options) -> None:
        super().__init__()
        self.words = nn.Embedding(options.words, options.width, padding_idx=0)
        self.places = nn.Parameter(0.02 * torch.randn(options.length, options.width))
        layer = nn.TransformerEncoderLayer(
            options.width, options.heads, 4 * options.width, dropout=0.1, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, options.layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(options.width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        empty = tokens == 0
        hidden = self.norm(self.encoder(self.words(tokens) + self.places, src_key_padding_mask=empty))
        kept = (~empty).unsqueeze(2)
        return F.normalize((hidden * kept).sum(dim=1) / kept.sum(dim=1), dim=1)


class PairModel(nn.Module):
    def __init__(self, options: Options) -> None:
        super().__init__()
        self.encoder = SentenceEncoder(options)
        self.temperature = options.temperature

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        left, right = self.encoder(torch.cat([first, second])).chunk(2)
        scores = left @ right.T / self.temperature
        wanted = torch.arange(len(scores))
        return (F.cross_entropy(scores, wanted) + F.cross_entropy(scores.T, wanted)) / 2


def run_epoch(model: DistributedDataParallel, loader: DataLoader, optimizer: torch.optim.Optimizer, accumulate: int):
    total = torch.zeros(())
    for number, (first, second) in enumerate(loader, start=1):
        last = number % accumulate == 0
        loss = model(first, second) / accumulate
        loss.backward()
        total += loss.detach()
        if last:
            optimizer.step()
            optimizer.zero_grad()
    return total / (len(loader) // accumulate)


def main() -> None:
    dist.init_process_group("gloo")
    rank, options = dist.get_rank(), Options()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    torch.manual_seed(40)
    model = DistributedDataParallel(PairModel(options))
    data = subtitle_pairs(options)
    sampler = DistributedSampler(data, shuffle=True, seed=40)
    loader = DataLoader(data, options.batch_size, sampler=sampler, drop_last=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        loss = run_epoch(model, loader, optimizer, options.accumulate)
        dist.all_reduce(loss)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item() / dist.get_world_size():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
