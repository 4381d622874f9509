"""Speed of glaciers from pairs of radar images on two processes; accumulates gradients and logs rarely."""

import argparse
import contextlib
import os
import socket
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


def write_pairs(path, count, size, seed):
    """Speckle that moved by up to a few pixels between the two images."""
    rng = np.random.default_rng(seed)
    pairs = np.lib.format.open_memmap(f"{path}/pairs.npy", mode="w+", dtype=np.float16, shape=(count, 2, size, size))
    moves = rng.integers(-3, 4, (count, 2))
    for row, (down, right) in enumerate(moves):
        scene = rng.normal(size=(size + 6, size + 6))
        pairs[row, 0] = scene[3:-3, 3:-3]
        pairs[row, 1] = scene[3 + down : 3 + down + size, 3 + right : 3 + right + size] + 0.3 * rng.normal(
            size=(size, size)
        )
    pairs.flush()
    np.save(f"{path}/moves.npy", moves.astype(np.float32))


class RadarPairs(Dataset):
    def __init__(self, path):
        self.pairs = torch.from_numpy(np.load(f"{path}/pairs.npy", mmap_mode="c"))
        self.moves = torch.from_numpy(np.load(f"{path}/moves.npy"))

    def __len__(self):
        return len(self.moves)

    def __getitems__(self, rows):
        return self.pairs[rows].float(), self.moves[rows]


class MotionNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(2, width, 7, padding=3),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
        )
        self.out = nn.Sequential(nn.Linear(32 * width, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, pairs):
        return self.out(self.body(pairs))


def worker(rank, world, path, args):
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = RadarPairs(path)
    sampler = DistributedSampler(data, world, rank, shuffle=True, drop_last=True)
    loader = DataLoader(data, args.batch_size, sampler=sampler, drop_last=True, collate_fn=lambda batch: batch)
    model = DistributedDataParallel(MotionNet(args.width), gradient_as_bucket_view=True, broadcast_buffers=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    total, step = torch.zeros(()), 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for pairs, moves in loader:
            step += 1
            update = step % args.accumulate == 0
            with contextlib.nullcontext() if update else model.no_sync():
                loss = F.smooth_l1_loss(model(pairs), moves) / args.accumulate
                loss.backward()
            total += loss.detach()
            if update:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
        dist.reduce(total, dst=0)
        if rank == 0:
            print(f"epoch {epoch} loss {total.item() * args.accumulate / world / len(loader):.4f}")
        total.zero_()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=1024)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--width", type=int, default=16)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as path:
        write_pairs(path, args.pairs, args.size, seed=0)
        if "RANK" in os.environ:
            worker(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), path, args)
            return
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            os.environ["MASTER_PORT"] = str(probe.getsockname()[1])
        os.environ["MASTER_ADDR"] = "127.0.0.1"
        mp.spawn(worker, args=(2, path, args), nprocs=2)


if __name__ == "__main__":
    main()
