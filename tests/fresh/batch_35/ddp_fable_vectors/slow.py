"""Morals of fables over frozen word vectors, on two ranks: torchrun --nproc-per-node 2 slow.py"""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

MORALS = ("patience", "pride", "greed", "cunning", "honesty", "thrift", "courage", "haste")


def word_vectors(words: int, dim: int, seed: int) -> torch.Tensor:
    """Stands for a file of vectors that were trained elsewhere: words of one topic lie close together."""
    generator = torch.Generator().manual_seed(seed)
    topics = torch.randn(64, dim, generator=generator)
    topic = torch.arange(words) % 64
    return F.normalize(topics[topic] + 0.8 * torch.randn(words, dim, generator=generator), dim=1)


def write_fables(count: int, length: int, words: int, seed: int) -> TensorDataset:
    """Each moral has topics of its own, from which a third of the words come."""
    generator = torch.Generator().manual_seed(seed)
    morals = torch.randint(len(MORALS), (count,), generator=generator)
    text = torch.randint(words, (count, length), generator=generator)
    topic = 8 * morals.unsqueeze(1) + torch.randint(8, (count, length), generator=generator)
    typical = 64 * torch.randint(words // 64, (count, length), generator=generator) + topic
    chosen = torch.rand(count, length, generator=generator) < 0.3
    return TensorDataset(torch.where(chosen, typical, text), morals)


class FableClassifier(nn.Module):
    def __init__(self, vectors: torch.Tensor, hidden: int, layers: int):
        super().__init__()
        self.register_buffer("vectors", vectors)
        self.inner = nn.Linear(vectors.shape[1], hidden)
        self.position = nn.Parameter(torch.zeros(1, 512, hidden))
        layer = nn.TransformerEncoderLayer(hidden, 4, 2 * hidden, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.query = nn.Linear(hidden, 1)
        self.head = nn.Linear(hidden, len(MORALS))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.inner(F.embedding(text, self.vectors)) + self.position[:, : text.shape[1]]
        x = self.encoder(x)
        weights = self.query(x).softmax(dim=1)
        return self.head((weights * x).sum(1))


class Averages:
    """Sums that stay on each rank until the end of an epoch."""

    def __init__(self):
        self.sums = torch.zeros(3)

    def add(self, loss: torch.Tensor, logits: torch.Tensor, morals: torch.Tensor) -> None:
        right = (logits.argmax(1) == morals).sum()
        self.sums += torch.stack([loss.detach() * len(morals), right, torch.tensor(len(morals))])

    def reduce(self) -> tuple[float, float]:
        dist.all_reduce(self.sums)
        loss, right, count = self.sums.tolist()
        return loss / count, right / count


def run(args: argparse.Namespace, folder: str) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    vectors = word_vectors(args.words, args.dim, args.seed)
    train_set = write_fables(args.fables, args.length, args.words, args.seed + 1)
    test_set = write_fables(args.fables // 10, args.length, args.words, args.seed + 2)
    sampler = DistributedSampler(train_set, seed=args.seed, drop_last=True)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=64, sampler=range(rank, len(test_set), ranks))

    torch.manual_seed(args.seed)
    model = DistributedDataParallel(FableClassifier(vectors, args.hidden, args.layers))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        trained = Averages()
        for text, morals in train_loader:
            logits = model(text)
            loss = F.cross_entropy(logits, morals)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            trained.add(loss, logits, morals)
        model.eval()
        tested = Averages()
        with torch.no_grad():
            for text, morals in test_loader:
                logits = model.module(text)
                tested.add(F.cross_entropy(logits, morals), logits, morals)
        results = (*trained.reduce(), *tested.reduce())
        if rank == 0:
            print("epoch {}: loss {:.3f}, accuracy {:.3f}; test {:.3f}, {:.3f}".format(epoch, *results), flush=True)
            torch.save(model.module.state_dict(), os.path.join(folder, "fables.pt"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--words", type=int, default=19_200)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--fables", type=int, default=3200)
    parser.add_argument("--length", type=int, default=48)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=620)
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        with tempfile.TemporaryDirectory() as folder:
            run(args, folder)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
