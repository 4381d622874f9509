"""Where glaciers end: a U-Net in channels_last on radar scenes that are made once and cropped a batch at a time."""

import torch
from torch import nn
from torch.nn import functional as F

SCENE, CROP = 128, 64


def scenes(count, seed):
    g = torch.Generator().manual_seed(seed)
    height = F.interpolate(torch.randn(count, 1, 5, 5, generator=g), size=SCENE, mode="bicubic")
    ice = height[:, 0] > 0
    return (0.8 * ice[:, None] + 0.5 * torch.randn(count, 2, SCENE, SCENE, generator=g)), ice.float()


def random_crops(radar, ice, index):
    """All crops of a batch by one gather each."""
    top, left = torch.randint(0, SCENE - CROP, (2, len(index), 1, 1))
    rows = top + torch.arange(CROP)[None, :, None]
    columns = left + torch.arange(CROP)[None, None]
    where = index[:, None, None]
    return radar[where, :, rows, columns].permute(0, 3, 1, 2), ice[where, rows, columns]


def double(a, b):
    return nn.Sequential(
        nn.Conv2d(a, b, 3, padding=1, bias=False),
        nn.BatchNorm2d(b),
        nn.ReLU(inplace=True),
        nn.Conv2d(b, b, 3, padding=1, bias=False),
        nn.BatchNorm2d(b),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.down = nn.ModuleList([double(2, width), double(width, 2 * width)])
        self.bottom = double(2 * width, 2 * width)
        self.up = nn.ModuleList([double(4 * width, width), double(2 * width, width)])
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        a = self.down[0](x)
        b = self.down[1](F.max_pool2d(a, 2))
        y = F.interpolate(self.bottom(F.max_pool2d(b, 2)), scale_factor=2.0)
        y = F.interpolate(self.up[0](torch.cat([y, b], 1)), scale_factor=2.0)
        return self.out(self.up[1](torch.cat([y, a], 1))).squeeze(1)


def main():
    torch.manual_seed(0)
    radar, ice = scenes(96, 0)
    radar = radar.contiguous(memory_format=torch.channels_last)
    model = UNet().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    steps, running = 130, torch.zeros(())
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    for step in range(1, steps + 1):
        images, wanted = random_crops(radar, ice, torch.randint(0, len(radar), (8,)))
        loss = F.binary_cross_entropy_with_logits(model(images), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        running += loss.detach()
        if step % 26 == 0:
            print(f"step {step}: loss {running.item() / 26:.4f}")
            running.zero_()


if __name__ == "__main__":
    main()
