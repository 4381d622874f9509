"""Kinds of variable stars from folded light curves, on several ranks: 1D convolutions, DDP, checkpoints of rank 0."""

import argparse
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

KINDS = ("cepheid", "eclipsing", "rr lyrae", "mira", "constant")


class LightCurves(Dataset):
    """Magnitudes in phase bins with their errors; every item is shifted in phase and gets new noise."""

    def __init__(self, count, bins, seed, augment):
        g = torch.Generator().manual_seed(seed)
        self.augment = augment
        self.kind = torch.randint(0, len(KINDS), (count,), generator=g)
        phase = torch.linspace(0, 1, bins + 1)[:-1]
        turn = 2 * torch.pi * phase
        dips = torch.exp(-(((phase - 0.25) / 0.05) ** 2)) + 0.5 * torch.exp(-(((phase - 0.75) / 0.05) ** 2))
        saw = (phase < 0.2) * phase / 0.2 + (phase >= 0.2) * (1 - phase) / 0.8
        shapes = torch.stack([torch.sin(turn) + 0.3 * torch.sin(2 * turn), -dips, saw, torch.sin(turn), 0 * turn])
        size = 0.3 + 0.7 * torch.rand(count, 1, generator=g)
        self.error = 0.1 + 0.3 * torch.rand(count, 1, generator=g)
        self.curve = size * shapes[self.kind] + self.error * torch.randn(count, bins, generator=g)

    def __len__(self):
        return len(self.kind)

    def __getitem__(self, index):
        curve, error = self.curve[index], self.error[index]
        if self.augment:
            curve = curve.roll(int(torch.randint(len(curve), ()))) + 0.5 * error * torch.randn_like(curve)
        return torch.stack([curve, error.expand_as(curve)]), self.kind[index]


class StarNet(nn.Module):
    def __init__(self, kinds, width=32):
        super().__init__()
        layers, inside = [], 2
        for outside in (width, 2 * width, 2 * width, 3 * width):
            layers += [
                nn.Conv1d(inside, outside, 7, padding=3, padding_mode="circular"),
                nn.GroupNorm(8, outside),
                nn.GELU(),
                nn.MaxPool1d(2),
            ]
            inside = outside
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(inside, kinds)

    def forward(self, x):
        return self.head(self.features(x).mean(2))


def build_loaders(args):
    train_set = LightCurves(args.stars, args.bins, seed=1, augment=True)
    val_set = LightCurves(args.stars // 10, args.bins, seed=2, augment=False)
    val_sampler = DistributedSampler(val_set, shuffle=False)
    train_sampler = DistributedSampler(train_set, shuffle=True, drop_last=True)
    train_loader = DataLoader(train_set, args.batch_size, sampler=train_sampler, drop_last=True)
    val_loader = DataLoader(val_set, 4 * args.batch_size, sampler=val_sampler)
    return train_loader, val_loader


def train(model, loader, optimizer, criterion, epoch, log_every):
    model.train()
    for step, (curves, kinds) in enumerate(loader, 1):
        optimizer.zero_grad()
        loss = criterion(model(curves), kinds)
        loss.backward()
        optimizer.step()
        if step % log_every == 0 and dist.get_rank() == 0:
            print(f"epoch {epoch} [{step}/{len(loader)}] loss {loss.item():.4f}", flush=True)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    counts = torch.zeros(2)
    for curves, kinds in loader:
        counts += torch.stack([(model(curves).argmax(1) == kinds).sum(), torch.tensor(len(kinds))])
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stars", type=int, default=4800)
    parser.add_argument("--bins", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(10)

    train_loader, val_loader = build_loaders(args)
    model = DistributedDataParallel(StarNet(len(KINDS)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    criterion = nn.CrossEntropyLoss()
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(args.epochs):
            train_loader.sampler.set_epoch(epoch)
            start = time.time()
            train(model, train_loader, optimizer, criterion, epoch, log_every=50)
            accuracy = validate(model, val_loader)
            if dist.get_rank() == 0:
                print(f"epoch {epoch} accuracy {accuracy:.3f} in {time.time() - start:.1f}s", flush=True)
                torch.save(model.module.state_dict(), os.path.join(folder, f"stars_{epoch}.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
