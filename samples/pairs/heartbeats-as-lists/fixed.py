"""Arrhythmias from two leads of an electrocardiogram: records stream through a shuffle buffer into a 1-d network."""

import random
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

LEADS, LENGTH, CLASSES = 2, 720, 5


def read_records(count, seed):
    """What the hospital's export holds, one dictionary for each beat: plain numbers, as a JSON reader gives them."""
    draw = torch.Generator().manual_seed(seed)
    time = torch.linspace(0, 12.0, LENGTH)
    records = []
    for label in torch.randint(0, CLASSES, (count,), generator=draw).tolist():
        phase = 6.28 * torch.rand(LEADS, 1, generator=draw)
        beat = torch.sin((1 + 0.3 * label) * time + phase) + 0.4 * torch.randn(LEADS, LENGTH, generator=draw)
        records.append({"leads": beat.tolist(), "rhythm": label})
    return records


class Beats(IterableDataset):
    """Epochs of beats in a random order, as far as the buffer reaches."""

    def __init__(self, records, buffer=256):
        self.leads, self.rhythms = [], []
        for record in records:
            self.leads.append(torch.tensor(record["leads"], dtype=torch.float32))
            self.rhythms.append(record["rhythm"])
        self.buffer = buffer

    def __iter__(self):
        waiting = []
        for index in range(len(self.leads)):
            waiting.append(index)
            if len(waiting) >= self.buffer:
                yield self.sample(waiting.pop(random.randrange(len(waiting))))
        random.shuffle(waiting)
        yield from map(self.sample, waiting)

    def sample(self, index):
        return self.leads[index], self.rhythms[index]


class RhythmNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        widths = [LEADS, width, 2 * width, 2 * width, 4 * width]
        self.convs = nn.ModuleList(nn.Conv1d(a, b, 7, stride=3, padding=3, bias=False) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(nn.BatchNorm1d(b) for b in widths[1:])
        self.head = nn.Linear(4 * width, CLASSES)

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms):
            x = F.relu(norm(conv(x)))
        return self.head(x.mean(2))


def run_epoch(model, loader, device, optimizer=None):
    """Trains where there is an optimizer; gives the mean loss and the share of beats that were recognised."""
    model.train(optimizer is not None)
    total, right, seen = 0.0, 0, 0
    with torch.set_grad_enabled(optimizer is not None):
        for beats, rhythms in loader:
            beats, rhythms = beats.to(device), rhythms.to(device)
            with torch.autocast(device, dtype=torch.bfloat16):
                scores = model(beats)
            loss = F.cross_entropy(scores.float(), rhythms)
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            total += loss.detach() * len(beats)
            right += (scores.detach().argmax(1) == rhythms).sum()
            seen += len(beats)
    return float(total) / seen, int(right) / seen


def main():
    torch.manual_seed(0)
    random.seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train = DataLoader(Beats(read_records(2048, 0)), batch_size=64, drop_last=True)
    valid = DataLoader(Beats(read_records(256, 1)), batch_size=128)
    model = RhythmNet().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
    for epoch in range(4):
        loss, share = run_epoch(model, train, device, optimizer)
        schedule.step()
        print(
            f"epoch {epoch}: loss {loss:.3f}, {share:.3f} right; {run_epoch(model, valid, device)[1]:.3f} of new ones"
        )


if __name__ == "__main__":
    main()
