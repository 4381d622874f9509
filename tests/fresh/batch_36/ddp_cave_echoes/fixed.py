"""Shapes of caves from the echoes of a clap, on two ranks: torchrun --nproc-per-node 2 slow.py"""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SHAPES = ("tunnel", "dome", "shaft", "chamber", "maze")


class Echoes(Dataset):
    """Claps in simulated caves: a few early reflections and a decaying tail, both by the shape of the cave."""

    def __init__(self, count: int, length: int, seed: int):
        generator = torch.Generator().manual_seed(seed)
        self.shapes = torch.randint(len(SHAPES), (count,), generator=generator)
        time = torch.arange(length)
        decay = torch.tensor([0.004, 0.002, 0.006, 0.003, 0.009])[self.shapes].unsqueeze(1)
        tail = torch.exp(-decay * time) * torch.randn(count, length, generator=generator)
        spacing = torch.tensor([37.0, 83.0, 51.0, 120.0, 23.0])[self.shapes]
        sound = 0.3 * tail
        for bounce in range(1, 6):
            jitter = 1 + 0.1 * torch.randn(count, generator=generator)
            place = (bounce * spacing * jitter).clamp(0, length - 1).unsqueeze(1)
            sound += 0.8**bounce * torch.exp(-(((time - place) / 3) ** 2))
        self.sound = sound + 0.1 * torch.randn(count, length, generator=generator)

    def __len__(self) -> int:
        return len(self.shapes)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        sound = self.sound[index]
        return (sound / sound.abs().amax()).unsqueeze(0), self.shapes[index]


class EchoNet(nn.Module):
    def __init__(self, width: int, shapes: int):
        super().__init__()
        layers, channels = [], 1
        for stride in (2, 2, 4, 4):
            layers += [nn.Conv1d(channels, width, 9, stride, 4), nn.GroupNorm(4, width), nn.ReLU(inplace=True)]
            channels = width
        self.features = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(inplace=True), nn.Linear(width, shapes))

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        x = self.features(sound)
        return self.head(torch.cat([x.mean(2), x.amax(2)], dim=1))


def train_epoch(model: DDP, loader: DataLoader, optimizer: torch.optim.Optimizer) -> torch.Tensor:
    model.train()
    total = torch.zeros(2)
    for sound, shapes in loader:
        loss = F.cross_entropy(model(sound), shapes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += torch.stack([loss.detach(), torch.ones(())])
    return total


@torch.no_grad()
def count_right(model: nn.Module, loader: DataLoader) -> torch.Tensor:
    model.eval()
    total = torch.zeros(2)
    for sound, shapes in loader:
        total += torch.tensor([(model(sound).argmax(1) == shapes).sum(), len(shapes)])
    return total


def work(args: argparse.Namespace) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(args.seed)
    train_set = Echoes(args.claps, args.length, args.seed)
    test_set = Echoes(args.claps // 8, args.length, args.seed + 1)
    train_sampler = DistributedSampler(train_set, ranks, rank, shuffle=True, seed=args.seed, drop_last=True)
    train_loader = DataLoader(train_set, args.batch_size, sampler=train_sampler, drop_last=True)
    test_sampler = DistributedSampler(test_set, ranks, rank, shuffle=False)
    test_loader = DataLoader(test_set, 2 * args.batch_size, sampler=test_sampler)
    model = DDP(EchoNet(args.width, len(SHAPES)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(args.epochs):
            train_sampler.set_epoch(epoch)
            sums = torch.cat([train_epoch(model, train_loader, optimizer), count_right(model.module, test_loader)])
            scheduler.step()
            dist.all_reduce(sums)
            if rank == 0:
                print(f"epoch {epoch}: loss {sums[0] / sums[1]:.4f}, accuracy {sums[2] / sums[3]:.3f}", flush=True)
                torch.save(model.module.state_dict(), os.path.join(folder, "echoes.pt"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--claps", type=int, default=3200)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=333)
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        work(args)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
