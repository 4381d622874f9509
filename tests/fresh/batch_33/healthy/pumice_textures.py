"""Kinds of pumice from pictures of cut surfaces: a channels-last convolutional net on tensors in memory."""

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def grow_textures(count: int, size: int, kinds: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Noise blurred to the pore size of its kind, in three slightly different tints."""
    labels = torch.randint(kinds, (count,), generator=generator)
    noise = torch.rand(count, 1, size, size, generator=generator)
    pictures = torch.empty(count, 3, size, size)
    for kind in range(kinds):
        chosen = labels == kind
        pores = F.avg_pool2d(noise[chosen], 2 * kind + 3, stride=1, padding=kind + 1, count_include_pad=False)
        pores = (pores - pores.mean((2, 3), keepdim=True)) / pores.std((2, 3), keepdim=True)
        tint = 1 + 0.1 * torch.randn(len(pores), 3, 1, 1, generator=generator)
        pictures[chosen] = pores * tint
    return pictures, labels


def augment(pictures: Tensor) -> Tensor:
    """One flip and one turn for the batch, noise for each picture."""
    if torch.rand(()) < 0.5:
        pictures = pictures.flip(-1)
    pictures = torch.rot90(pictures, int(torch.randint(4, ())), (2, 3))
    return pictures + 0.1 * torch.randn_like(pictures)


class Stage(nn.Sequential):
    def __init__(self, inside: int, outside: int):
        super().__init__(
            nn.Conv2d(inside, outside, 3, padding=1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(inplace=True),
            nn.Conv2d(outside, outside, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(inplace=True),
        )


class PumiceNet(nn.Module):
    def __init__(self, kinds: int, widths: tuple[int, ...]):
        super().__init__()
        sizes = (3, *widths)
        self.stages = nn.Sequential(*(Stage(a, b) for a, b in zip(sizes, sizes[1:], strict=False)))
        self.head = nn.Linear(widths[-1], kinds)

    def forward(self, pictures: Tensor) -> Tensor:
        return self.head(self.stages(pictures).mean((2, 3)))


@torch.inference_mode()
def accuracy(model: nn.Module, pictures: Tensor, labels: Tensor) -> float:
    model.eval()
    hits = sum((model(p).argmax(1) == y).sum() for p, y in zip(pictures.split(256), labels.split(256), strict=True))
    model.train()
    return hits.item() / len(labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=2400)
    parser.add_argument("--size", type=int, default=40)
    parser.add_argument("--kinds", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=31)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    pictures, labels = grow_textures(args.pictures, args.size, args.kinds, generator)
    pictures = pictures.contiguous(memory_format=torch.channels_last)
    cut = args.pictures * 9 // 10
    model = PumiceNet(args.kinds, (24, 48, 96)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.02, fused=True)
    steps = args.epochs * (cut // args.batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=steps)
    for epoch in range(args.epochs):
        total = torch.zeros(())
        order = torch.randperm(cut)[: cut // args.batch_size * args.batch_size]
        for rows in order.split(args.batch_size):
            batch = augment(pictures[rows]).contiguous(memory_format=torch.channels_last)
            loss = F.cross_entropy(model(batch), labels[rows], label_smoothing=0.05)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.detach()
        right = accuracy(model, pictures[cut:], labels[cut:])
        print(f"epoch {epoch}: loss {total.item() / (cut // args.batch_size):.3f}, held-out accuracy {right:.3f}")


if __name__ == "__main__":
    main()
