"""Secondary structure of proteins: chains of like length share a batch, as many as fit into a budget of residues."""

import argparse
import math
import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

RESIDUES, STATES = 21, 3


class BudgetSampler:
    """Batches of indices with about `budget` residues each; chains of similar length are put together."""

    def __init__(self, lengths, budget, seed=0):
        self.lengths, self.budget, self.seed, self.epoch = lengths, budget, seed, 0

    def __iter__(self):
        rng = random.Random(self.seed + self.epoch)
        order = sorted(range(len(self.lengths)), key=lambda i: self.lengths[i] + rng.random() * 8)
        batches, batch = [], []
        for index in order:
            if (len(batch) + 1) * self.lengths[index] > self.budget:
                batches.append(batch)
                batch = []
            batch.append(index)
        batches.append(batch)
        rng.shuffle(batches)
        return iter(batches)

    def __len__(self):
        return sum(1 for _ in self)


def chains(count):
    """Random chains; a state depends on a residue and on the one four places before."""
    made = []
    for _ in range(count):
        residues = torch.randint(1, RESIDUES, (random.randint(24, 120),))
        made.append((residues, (residues + residues.roll(4)) % STATES))
    return made


def collate(batch):
    residues, states = zip(*batch)
    return pad_sequence(residues, batch_first=True), pad_sequence(states, batch_first=True, padding_value=-100)


class Tagger(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embed = nn.Embedding(RESIDUES, width, padding_idx=0)
        self.mix = nn.ModuleList([nn.Conv1d(width, width, 9, padding=4) for _ in range(2)])
        self.out = nn.Conv1d(width, STATES, 1)

    def forward(self, residues):
        x = self.embed(residues).transpose(1, 2)
        for layer in self.mix:
            x = x + layer(x).relu()
        return self.out(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chains", type=int, default=6000)
    parser.add_argument("--budget", type=int, default=2400)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    random.seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = chains(args.chains)
    sampler = BudgetSampler([len(residues) for residues, _ in data], args.budget)
    loader = DataLoader(data, batch_sampler=sampler, collate_fn=collate)
    model = Tagger(width=48).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
    step, steps = 0, args.epochs * len(loader)
    for epoch in range(args.epochs):
        sampler.epoch = epoch
        for residues, states in loader:
            for group in optimizer.param_groups:
                group["lr"] = args.lr * 0.5 * (1 + math.cos(math.pi * step / steps))
            with torch.autocast(device, dtype=torch.bfloat16):
                scores = model(residues.to(device))
            loss = nn.functional.cross_entropy(scores.float(), states.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
        print(f"epoch {epoch}: {step} steps, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
