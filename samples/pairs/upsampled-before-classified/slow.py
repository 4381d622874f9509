"""Organs in slices of a scan: features at a quarter of the resolution, and a class for each pixel at the full one."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
SIDE, ORGANS = 64, 5


def conv(inner, outer, stride):
    return nn.Sequential(nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU())


class Encoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = conv(1, width // 2, 2)
        self.middle = conv(width // 2, width, 2)
        self.deep = nn.Sequential(conv(width, width, 2), conv(width, width, 1))

    def forward(self, x):
        middle = self.middle(self.stem(x))
        return middle, self.deep(middle)


class Head(nn.Module):
    """Both scales together, then one class for each pixel."""

    def __init__(self, width, classes):
        super().__init__()
        self.fuse = conv(2 * width, width, 1)
        self.classify = nn.Conv2d(width, classes, kernel_size=1)

    def forward(self, middle, deep, size):
        deep = F.interpolate(deep, size=middle.shape[-2:], mode="bilinear", align_corners=False)
        x = self.fuse(torch.cat([middle, deep], dim=1))
        x = F.interpolate(x, size=size, mode="bilinear", align_corners=False)
        return self.classify(x)


class Segmenter(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.encoder = Encoder(width)
        self.head = Head(width, ORGANS)

    def forward(self, x):
        return self.head(*self.encoder(x), size=x.shape[-2:])


def scans(count):
    """Organs are discs of their own grey; what lies outside them is class 0."""
    axis = torch.linspace(-1, 1, SIDE)
    mask = torch.zeros(count, SIDE, SIDE, dtype=torch.long)
    for organ in range(1, ORGANS):
        row, column = torch.rand(2, count, 1, 1) * 1.6 - 0.8
        mask[(axis[:, None] - row) ** 2 + (axis - column) ** 2 < 0.08] = organ
    grey = torch.linspace(-1, 1, ORGANS)[mask]
    return (grey + 0.4 * torch.randn_like(grey))[:, None], mask


slices, masks = (tensor.to(device) for tensor in scans(800))
net = Segmenter().to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, fused=True)
schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=200, power=0.9)
for epoch in range(2):
    total = torch.zeros((), device=device)
    for rows in torch.randperm(len(slices), device=device).split(8):
        with torch.autocast(device, dtype=torch.bfloat16):
            scores = net(slices[rows])
        loss = F.cross_entropy(scores.float(), masks[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        total += loss.detach()
    print(f"epoch {epoch}: loss {total.item() / 100:.4f}, rate {schedule.get_last_lr()[0]:.4f}")
