"""Find cracks and stains on marble slabs: a small U-Net, trained on tiles that are kept in memory."""

import argparse

import torch
from torch import nn

CLASSES = 3  # sound, crack, stain


def make_tiles(count: int, size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Veined tiles with a thin crack and a round stain each."""
    generator = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, size)
    x, y = axis.view(1, 1, -1), axis.view(1, -1, 1)
    angle, offset, cx, cy = (torch.rand(4, count, 1, 1, generator=generator) * 2 - 1).unbind(0)
    crack = (x * torch.cos(3 * angle) + y * torch.sin(3 * angle) - 0.5 * offset).abs() < 0.04
    stain = (x - cx).square() + (y - cy).square() < 0.06
    masks = torch.zeros(count, size, size, dtype=torch.long)
    masks[stain] = 2
    masks[crack] = 1
    veins = torch.sin(6 * x + 4 * y + 5 * angle)
    grey = 0.6 + 0.1 * veins - 0.25 * crack + 0.1 * torch.randn(count, size, size, generator=generator)
    tint = torch.tensor([1.0, 0.95, 0.9]).view(1, 3, 1, 1)
    tiles = grey[:, None] * tint
    tiles[:, 2] -= 0.2 * stain
    return tiles.contiguous(memory_format=torch.channels_last), masks


class DoubleConv(nn.Sequential):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )


class SlabNet(nn.Module):
    def __init__(self, widths: tuple[int, ...] = (16, 32, 64)) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            DoubleConv(inputs, outputs) for inputs, outputs in zip((3, *widths[:-1]), widths, strict=True)
        )
        self.pool = nn.MaxPool2d(2)
        pairs = list(zip(widths[::-1][:-1], widths[::-1][1:], strict=True))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(wide, narrow, 2, stride=2) for wide, narrow in pairs)
        self.up = nn.ModuleList(DoubleConv(2 * narrow, narrow) for _, narrow in pairs)
        self.out = nn.Conv2d(widths[0], CLASSES, 1)

    def forward(self, tiles: torch.Tensor) -> torch.Tensor:
        kept = []
        hidden = tiles
        for i, block in enumerate(self.down):
            hidden = block(self.pool(hidden) if i else hidden)
            kept.append(hidden)
        kept.pop()
        for grow, block in zip(self.grow, self.up, strict=True):
            hidden = block(torch.cat([kept.pop(), grow(hidden)], dim=1))
        return self.out(hidden)


class SlabLoss(nn.Module):
    """Cross entropy and one minus the Dice score of the defects."""

    def __init__(self) -> None:
        super().__init__()
        self.entropy = nn.CrossEntropyLoss(weight=torch.tensor([0.4, 1.6, 1.0]))

    def forward(self, logits: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
        shares = logits.softmax(dim=1)[:, 1:]
        wanted = torch.stack([masks == 1, masks == 2], dim=1).to(shares.dtype)
        overlap = (shares * wanted).sum(dim=(0, 2, 3))
        dice = (2 * overlap + 1) / (shares.sum(dim=(0, 2, 3)) + wanted.sum(dim=(0, 2, 3)) + 1)
        return self.entropy(logits, masks) + 1 - dice.mean()


@torch.inference_mode()
def accuracy(model: nn.Module, tiles: torch.Tensor, masks: torch.Tensor) -> float:
    model.eval()
    right = (model(tiles).argmax(dim=1) == masks).float().mean()
    model.train()
    return right.item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiles", type=int, default=480)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=59)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    tiles, masks = make_tiles(args.tiles, args.size, args.seed)
    valid_tiles, valid_masks = make_tiles(32, args.size, args.seed + 1)
    model = SlabNet().to(memory_format=torch.channels_last)
    criterion = SlabLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    for epoch in range(args.epochs):
        total = torch.zeros(())
        batches = torch.randperm(len(tiles)).split(args.batch_size)
        for rows in batches:
            loss = criterion(model(tiles[rows]), masks[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(
            f"epoch {epoch}: loss {total.item() / len(batches):.4f}, "
            f"pixel accuracy {accuracy(model, valid_tiles, valid_masks):.4f}"
        )


if __name__ == "__main__":
    main()
