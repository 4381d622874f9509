"""Denoising diffusion on 32 x 32 pictures: a UNet of two resolutions, fused AdamW, TF32, pinned batches."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LEVELS, BATCH, WIDTH = 1000, 11, 160


class Block(nn.Module):
    """Two convolutions with the time's embedding between them."""

    def __init__(self, inside: int, out: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(inside, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
        self.norms = nn.ModuleList([nn.GroupNorm(8, out), nn.GroupNorm(8, out)])
        self.time = nn.Linear(WIDTH, out)
        self.skip = nn.Conv2d(inside, out, 1)

    def forward(self, x: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
        h = functional.silu(self.norms[0](self.first(x))) + self.time(level)[:, :, None, None]
        return functional.silu(self.norms[1](self.second(h))) + self.skip(x)


class UNet(nn.Module):
    """Down, middle, up."""

    def __init__(self) -> None:
        super().__init__()
        self.level = nn.Embedding(LEVELS, WIDTH)
        self.into, self.out = nn.Conv2d(3, WIDTH, 3, padding=1), nn.Conv2d(WIDTH, 3, 3, padding=1)
        self.down, self.middle = Block(WIDTH, WIDTH), Block(WIDTH, 2 * WIDTH)
        self.up = Block(3 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
        time = self.level(level)
        fine = self.down(self.into(x), time)
        coarse = self.middle(functional.avg_pool2d(fine, 2), time)
        wide = functional.interpolate(coarse, scale_factor=2, mode="nearest")
        return self.out(self.up(torch.cat([fine, wide], 1), time))


def main() -> None:
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    pictures = TensorDataset(torch.randn(BATCH * 30, 3, 32, 32))
    loader = DataLoader(pictures, BATCH, shuffle=True, num_workers=2, pin_memory=True, drop_last=True)
    model = UNet().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=True)
    kept = torch.linspace(1, 0.01, LEVELS, device=DEVICE)
    for (batch,) in loader:
        clean = batch.to(DEVICE, non_blocking=True)
        level = torch.randint(0, LEVELS, (BATCH,), device=DEVICE)
        noise = torch.randn_like(clean)
        share = kept[level][:, None, None, None]
        noisy = share.sqrt() * clean + (1 - share).sqrt() * noise
        loss = functional.mse_loss(model(noisy, level), noise)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
