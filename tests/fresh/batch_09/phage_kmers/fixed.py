"""Which host a phage infects, from the k-mers of random fragments of its genome."""

import argparse
import linecache
import random
import tracemalloc
from collections import Counter
from itertools import product

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

HOSTS = ["escherichia", "salmonella", "bacillus", "vibrio"]


def genomes(count, length, seed):
    """Genomes from a Markov chain of the second order per host."""
    rng = random.Random(seed)
    pairs = ["".join(p) for p in product("ACGT", repeat=2)]
    chains = [{pair: [rng.random() + 0.3 for _ in range(4)] for pair in pairs} for _ in HOSTS]
    made = []
    for i in range(count):
        host = i % len(HOSTS)
        letters = list("AC")
        for _ in range(length):
            letters.append(rng.choices("ACGT", chains[host][letters[-2] + letters[-1]])[0])
        made.append(("".join(letters), host))
    return made


class Fragments(Dataset):
    """A random fragment of a genome, with sequencing errors, as frequencies of its k-mers on both strands."""

    COMPLEMENT = str.maketrans("ACGT", "TGCA")

    def __init__(self, genomes, length, per_epoch, k=5):
        self.genomes, self.length, self.per_epoch, self.k = genomes, length, per_epoch, k
        kmers = ("".join(p) for p in product("ACGT", repeat=k))
        canonical = {min(kmer, kmer.translate(self.COMPLEMENT)[::-1]) for kmer in kmers}
        self.index = {kmer: i for i, kmer in enumerate(sorted(canonical))}

    def fragment(self, genome):
        start = random.randrange(len(genome) - self.length)
        letters = list(genome[start : start + self.length])
        for position in random.sample(range(self.length), self.length // 50):
            letters[position] = random.choice("ACGT")
        return "".join(letters)

    def __len__(self):
        return self.per_epoch

    def __getitem__(self, i):
        genome, host = self.genomes[i % len(self.genomes)]
        forward = self.fragment(genome)
        backward = forward.translate(self.COMPLEMENT)[::-1]
        counts = Counter()
        for start in range(self.length - self.k + 1):
            stop = self.length - start
            counts[min(forward[start : start + self.k], backward[stop - self.k : stop])] += 1
        features = torch.zeros(len(self.index))
        features[[self.index[kmer] for kmer in counts]] = torch.tensor([float(c) for c in counts.values()])
        return features / self.length, host


class HostClassifier(nn.Module):
    def __init__(self, kmers, width):
        super().__init__()
        self.net = nn.Sequential(
            nn.BatchNorm1d(kmers), nn.Linear(kmers, width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, width),
            nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, len(HOSTS)),
        )  # fmt: skip

    def forward(self, x):
        return self.net(x)


def memory_report(top=3):
    """The lines that hold the most memory, if that is traced."""
    if not tracemalloc.is_tracing():
        return
    for number in tracemalloc.take_snapshot().statistics("lineno")[:top]:
        frame = number.traceback[0]
        print(f"  {number.size / 2**20:.1f} MiB {linecache.getline(frame.filename, frame.lineno).strip()[:60]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--genomes", type=int, default=40)
    parser.add_argument("--length", type=int, default=4000)
    parser.add_argument("--fragment", type=int, default=400)
    parser.add_argument("--per-epoch", type=int, default=2560)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--width", type=int, default=768)
    args = parser.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    dataset = Fragments(genomes(args.genomes, args.length, seed=1), args.fragment, args.per_epoch)
    loader = DataLoader(dataset, args.batch_size, shuffle=True)
    model = HostClassifier(len(dataset.index), args.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    for epoch in range(args.epochs):
        total = 0.0
        for features, hosts in loader:
            loss = nn.functional.cross_entropy(model(features), hosts)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
        memory_report()


if __name__ == "__main__":
    main()
