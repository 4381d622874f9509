"""Organs in slices of a scan: a small U-shaped network trained with cross-entropy and the Dice loss."""

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
ORGANS, SIDE = 24, 48


class DiceLoss(nn.Module):
    """One minus the mean overlap of the classes, plus cross-entropy."""

    def __init__(self, classes, smooth=1.0):
        super().__init__()
        self.classes, self.smooth = classes, smooth

    def forward(self, scores, target):
        chance = scores.softmax(1)
        overlap = 0.0
        for organ in range(self.classes):
            mask = (target == organ).float()
            part = chance[:, organ]
            both = (part * mask).sum((1, 2))
            dice = (2 * both + self.smooth) / (part.sum((1, 2)) + mask.sum((1, 2)) + self.smooth)
            overlap = overlap + dice.mean()
        return F.cross_entropy(scores, target) + 1 - overlap / self.classes


class UNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU())
        self.deep = nn.Sequential(nn.Conv2d(width, 2 * width, 3, 2, 1), nn.ReLU(), nn.Conv2d(2 * width, width, 3, 1, 1))
        self.up = nn.Conv2d(2 * width, ORGANS, 3, padding=1)

    def forward(self, x):
        fine = self.down(x)
        coarse = F.interpolate(self.deep(fine), scale_factor=2.0)
        return self.up(torch.cat([fine, coarse], 1))


def slices(count):
    """Blocks of organs whose grey values differ."""
    organ = torch.randint(0, ORGANS, (count, 6, 6)).repeat_interleave(8, 1).repeat_interleave(8, 2)
    return (organ / ORGANS + 0.05 * torch.randn(count, SIDE, SIDE)).unsqueeze(1), organ


images, organs = (tensor.to(device) for tensor in slices(160))
model, criterion = UNet().to(device), DiceLoss(ORGANS)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
for epoch in range(5):
    for chosen in torch.randperm(len(images), device=device).split(8):
        loss = criterion(model(images[chosen]), organs[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.5f}")
