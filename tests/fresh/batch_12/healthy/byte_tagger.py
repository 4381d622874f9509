"""Tags words of log lines by their bytes. Text is encoded once into flat arrays; batches hold a budget of bytes."""

import argparse
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

KINDS = ["plain", "number", "path", "host", "level"]


def write_log(path, lines, seed):
    rng = np.random.default_rng(seed)
    plain = ["request", "done", "failed", "retry", "open", "closed", "user", "cache", "worker", "queue", "flush"]
    with open(path, "w", encoding="ascii") as file:
        for _ in range(lines):
            words = []
            for _ in range(rng.integers(4, 24)):
                kind = rng.choice(5, p=[0.55, 0.15, 0.1, 0.1, 0.1])
                number = rng.integers(0, 100000)
                word = (
                    plain[number % len(plain)],
                    str(number),
                    f"/srv/{plain[number % 7]}/{number % 97}.log",
                    f"node{number % 50}.{plain[number % 5]}.net",
                    ("INFO", "WARN", "ERROR")[number % 3],
                )[kind]
                words.append(f"{word}\t{kind}")
            file.write(" ".join(words) + "\n")


class EncodedLog:
    """Bytes and tags of all lines one after another, with where each line starts."""

    def __init__(self, path):
        letters, tags, starts = [], [], [0]
        with open(path, encoding="ascii") as file:
            for line in file:
                for pair in line.rstrip("\n").split(" "):
                    word, kind = pair.split("\t")
                    letters.append(word + " ")
                    tags += [int(kind)] * (len(word) + 1)
                starts.append(len(tags))
        self.letters = torch.frombuffer(bytearray("".join(letters), "ascii"), dtype=torch.uint8)
        self.tags = torch.tensor(tags, dtype=torch.int8)
        self.starts = torch.tensor(starts)
        self.lengths = self.starts.diff()

    def batches(self, budget, generator):
        """Lines of similar length together, so that a batch holds about `budget` bytes and little padding."""
        noise = torch.rand(len(self.lengths), generator=generator) * 8
        order = (self.lengths + noise).argsort()
        groups, first = [], 0
        while first < len(order):
            longest = int(self.lengths[order[min(first + 8, len(order) - 1)]])
            count = max(1, budget // longest)
            groups.append(order[first : first + count])
            first += count
        for number in torch.randperm(len(groups), generator=generator).tolist():
            yield self.pad(groups[number])

    def pad(self, rows):
        lengths = self.lengths[rows]
        place = torch.arange(int(lengths.max()))
        inside = place < lengths[:, None]
        index = (self.starts[rows, None] + place).clamp_max(len(self.tags) - 1)
        letters = self.letters[index].long().masked_fill(~inside, 0)
        return letters, self.tags[index].long().masked_fill(~inside, -100)


class Tagger(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.embed = nn.Embedding(128, width, padding_idx=0)
        self.convs = nn.ModuleList(
            nn.Conv1d(width, 2 * width, 5, padding=2 * 2**i, dilation=2**i) for i in range(depth)
        )
        self.out = nn.Conv1d(width, len(KINDS), 1)

    def forward(self, letters):
        x = self.embed(letters).transpose(1, 2)
        for conv in self.convs:
            x = x + F.glu(conv(x), dim=1)
        return self.out(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=6000)
    parser.add_argument("--budget", type=int, default=4096)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--depth", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(3)
    handle, path = tempfile.mkstemp(suffix=".log")
    os.close(handle)
    try:
        write_log(path, args.lines, seed=3)
        log = EncodedLog(path)
    finally:
        os.remove(path)
    model = Tagger(args.width, args.depth)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    generator = torch.Generator().manual_seed(3)
    for epoch in range(args.epochs):
        losses = []
        for letters, tags in log.batches(args.budget, generator):
            loss = F.cross_entropy(model(letters), tags, ignore_index=-100)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        print(f"epoch {epoch} batches {len(losses)} loss {torch.stack(losses).mean():.4f}")


if __name__ == "__main__":
    main()
