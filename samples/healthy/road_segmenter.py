"""Roads in small aerial pictures: bytes in memory, channels last, bfloat16, whole batches flipped."""

import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
SIDE = 64


def conv(inner, outer, stride=1):
    return nn.Sequential(
        nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(inplace=True)
    )


class RoadNet(nn.Module):
    """Down twice, up twice, with what was seen on the way down."""

    def __init__(self, width=32):
        super().__init__()
        self.fine, self.middle = conv(3, width, 2), conv(width, 2 * width, 2)
        self.deep = nn.Sequential(conv(2 * width, 2 * width), conv(2 * width, 4 * width), nn.PixelShuffle(2))
        self.out = nn.Sequential(conv(2 * width, 4 * width), nn.Conv2d(4 * width, 4, 1), nn.PixelShuffle(2))

    def forward(self, x):
        fine = self.fine(x)
        return self.out(torch.cat([fine, self.deep(self.middle(fine))], 1)).squeeze(1)


def pictures(count):
    """Roads are straight bands, brighter than the fields."""
    axis = torch.linspace(-1, 1, SIDE, device=device)
    angle = 3.1416 * torch.rand(count, 1, 1, device=device)
    offset = torch.rand(count, 1, 1, device=device) - 0.5
    road = (axis * angle.cos() + axis[:, None] * angle.sin() + offset).abs() < 0.1
    shade = 90 + 60 * road[:, None] + 25 * torch.randn(count, 3, SIDE, SIDE, device=device)
    return shade.clamp(0, 255).byte().contiguous(memory_format=torch.channels_last), road


seen, roads = pictures(2000)
model = RoadNet().to(device, memory_format=torch.channels_last)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
rounds = 2
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=rounds * 125)
for epoch in range(rounds):
    for chosen in torch.randperm(len(seen), device=device).split(16):
        x, road = seen[chosen], roads[chosen].float()
        if torch.rand(()) < 0.5:
            x, road = x.flip(3), road.flip(2)
        with torch.autocast(device, dtype=torch.bfloat16):
            scores = model(x.to(torch.bfloat16) / 128 - 1)
        loss = nn.functional.binary_cross_entropy_with_logits(scores.float(), road)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
