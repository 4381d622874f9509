"""Mussel beds in drone pictures, segmented by two ranks whose gradients are exchanged by DistributedDataParallel."""

import argparse
import os
import socket
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def double_conv(n_in, n_out):
    return nn.Sequential(
        nn.Conv2d(n_in, n_out, 3, padding=1, bias=False),
        nn.GroupNorm(4, n_out),
        nn.ReLU(True),
        nn.Conv2d(n_out, n_out, 3, padding=1, bias=False),
        nn.GroupNorm(4, n_out),
        nn.ReLU(True),
    )


class SmallUNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        sizes = [width, 2 * width, 4 * width, 8 * width]
        self.downs = nn.ModuleList(double_conv(a, b) for a, b in zip([3, *sizes[:-1]], sizes))
        self.ups = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in zip(sizes[:-1], sizes[1:]))
        self.merges = nn.ModuleList(double_conv(2 * a, a) for a in sizes[:-1])
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        kept = []
        for i, down in enumerate(self.downs):
            x = down(x if i == 0 else F.max_pool2d(x, 2))
            kept.append(x)
        for up, merge, skip in zip(reversed(self.ups), reversed(self.merges), reversed(kept[:-1])):
            x = merge(torch.cat([up(x), skip], dim=1))
        return self.head(x)


def beds(count, size, seed):
    generator = torch.Generator().manual_seed(seed)
    field = F.interpolate(torch.randn(count, 1, 5, 5, generator=generator), size=size, mode="bilinear")
    mask = (field > 0.4).float()
    images = 0.6 * mask + 0.3 * torch.rand(count, 3, size, size, generator=generator)
    return TensorDataset(images, mask)


def dice_bce(logits, mask):
    p = logits.sigmoid()
    dice = 1 - (2 * (p * mask).sum() + 1) / (p.sum() + mask.sum() + 1)
    return F.binary_cross_entropy_with_logits(logits, mask) + dice


def wrap(model, args):
    ddp = DistributedDataParallel(model)
    if args.compress_rank > 0:
        state = powersgd.PowerSGDState(
            process_group=None,
            matrix_approximation_rank=args.compress_rank,
            start_powerSGD_iter=args.compress_after,
            min_compression_rate=1,
        )
        ddp.register_comm_hook(state, powersgd.powerSGD_hook)
    return ddp


@torch.no_grad()
def iou(model, loader):
    model.eval()
    counts = torch.zeros(2)
    for images, mask in loader:
        found, true = model(images) > 0, mask > 0.5
        counts += torch.stack([(found & true).sum(), (found | true).sum()])
    model.train()
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def worker(rank, world, port, folder, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train, test = beds(args.pictures, args.size, seed=1), beds(24, args.size, seed=2)
    sampler = DistributedSampler(train, world, rank, shuffle=True, drop_last=True)
    train_loader = DataLoader(train, args.batch, sampler=sampler, drop_last=True)
    test_loader = DataLoader(test, args.batch, sampler=DistributedSampler(test, world, rank, shuffle=False))
    model = wrap(SmallUNet(), args)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, nesterov=True)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for images, mask in train_loader:
            loss = dice_bce(model(images), mask)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        score = iou(model.module, test_loader)
        if rank == 0:
            print(f"epoch {epoch}: loss {total.item() / len(train_loader):.3f}, IoU {score:.3f}", flush=True)
            torch.save(model.module.state_dict(), os.path.join(folder, "last.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--pictures", type=int, default=320)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--compress-rank", type=int, default=0)
    parser.add_argument("--compress-after", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        mp.spawn(worker, args=(2, free_port(), place, options), nprocs=2)
