"""Thistles among crops in small aerial tiles: an encoder and decoder of convolutions gives a mask for each tile."""

import argparse
import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def draw_tiles(count: int, size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows of crops as waves, thistles as bluish discs; pictures are kept as bytes."""
    generator = torch.Generator().manual_seed(seed)
    grid = torch.linspace(0, 1, size)
    y, x = torch.meshgrid(grid, grid, indexing="ij")
    angle = math.pi * torch.rand(count, 1, 1, generator=generator)
    rows = torch.sin(40 * (x * angle.cos() + y * angle.sin()))
    picture = torch.stack([0.3 + 0.1 * rows, 0.5 + 0.2 * rows, 0.2 + 0 * rows], dim=1)
    masks = torch.zeros(count, 1, size, size, dtype=torch.bool)
    for _ in range(5):
        place = torch.rand(count, 2, 1, 1, generator=generator)
        radius = 0.03 + 0.06 * torch.rand(count, 1, 1, generator=generator)
        disc = (x - place[:, 0]) ** 2 + (y - place[:, 1]) ** 2 < radius**2
        masks |= disc.unsqueeze(1)
    tint = torch.tensor([0.1, -0.1, 0.25]).view(1, 3, 1, 1)
    picture = picture + masks * tint + 0.08 * torch.randn(picture.shape, generator=generator)
    return (picture.clamp(0, 1) * 255).byte().contiguous(memory_format=torch.channels_last), masks


def block(inner: int, outer: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inner, outer, 3, padding=1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(inplace=True)
    )


class TileNet(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, width, 4, stride=2, padding=1), nn.ReLU(inplace=True))
        self.second = nn.Sequential(nn.Conv2d(width, 2 * width, 4, stride=2, padding=1), nn.ReLU(inplace=True))
        self.deep = nn.Sequential(block(2 * width, 4 * width), block(4 * width, 2 * width))
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.join = block(2 * width, width)
        self.out = nn.ConvTranspose2d(width, 1, 2, stride=2)

    def forward(self, tiles: Tensor) -> Tensor:
        first = self.first(tiles)
        deep = self.deep(self.second(first))
        return self.out(self.join(torch.cat([first, self.up(deep)], dim=1)))


def prepare(tiles: Tensor, masks: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    return tiles[chosen].float().div_(127.5).sub_(1), masks[chosen].float()


def mask_loss(logits: Tensor, masks: Tensor) -> Tensor:
    predicted = logits.sigmoid()
    dice = 1 - (2 * (predicted * masks).sum() + 1) / (predicted.sum() + masks.sum() + 1)
    return F.binary_cross_entropy_with_logits(logits, masks) + dice


@torch.inference_mode()
def intersection_over_union(model: nn.Module, tiles: Tensor, masks: Tensor) -> float:
    model.eval()
    both = either = torch.zeros(())
    for chosen in torch.arange(len(tiles)).split(64):
        inputs, truth = prepare(tiles, masks, chosen)
        predicted, truth = model(inputs) > 0, truth > 0.5
        both = both + (predicted & truth).sum()
        either = either + (predicted | truth).sum()
    return (both / either).item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiles", type=int, default=1000)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1503)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    tiles, masks = draw_tiles(args.tiles, args.size, args.seed)
    border = int(0.88 * args.tiles)
    model = TileNet(args.width).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    per_epoch = border // args.batch_size
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * per_epoch)
    best, weights = 0.0, None
    for epoch in range(args.epochs):
        model.train()
        total = torch.zeros(())
        for chosen in torch.randperm(border)[: per_epoch * args.batch_size].split(args.batch_size):
            inputs, truth = prepare(tiles, masks, chosen)
            loss = mask_loss(model(inputs), truth)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.detach()
        score = intersection_over_union(model, tiles[border:], masks[border:])
        if score > best:
            best, weights = score, copy.deepcopy(model.state_dict())
        print(f"epoch {epoch}: loss {total.item() / per_epoch:.4f}, intersection over union {score:.3f}")
    model.load_state_dict(weights)
    print(f"best {best:.3f}, with {sum(p.numel() for p in model.parameters())} weights")


if __name__ == "__main__":
    main()
