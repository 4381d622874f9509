"""Super-resolution of weather maps; messages for a debugging log that is usually switched off."""

import logging

import torch
from torch import nn

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("downscaling")
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"


class Downscaler(nn.Module):
    """From a coarse map and the height of the ground to one that is four times as fine."""

    def __init__(self, width=32):
        super().__init__()
        self.coarse = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 16, 3, padding=1))
        self.shuffle = nn.PixelShuffle(4)
        self.fine = nn.Sequential(nn.Conv2d(2, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, coarse, height):
        raised = self.shuffle(self.coarse(coarse))
        return raised + self.fine(torch.cat([raised, height], 1))


def weather(count):
    height = torch.rand(count, 1, 10, 10, device=device)
    height = nn.functional.interpolate(height, size=48, mode="bicubic")
    front = torch.linspace(-1, 1, 48, device=device).expand(count, 1, 48, 48)
    fine = front * torch.randn(count, 1, 1, 1, device=device) - height
    return nn.functional.avg_pool2d(fine, 4), height, fine


def train(model, coarse, height, fine, epochs=3):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, fused=True)
    for epoch in range(epochs):
        for number, chosen in enumerate(torch.randperm(len(fine), device=device).split(8)):
            made, truth = model(coarse[chosen], height[chosen]), fine[chosen]
            loss = nn.functional.mse_loss(made, truth)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            log.debug("batch %d of epoch %d: loss %s, maps %s, truth %s", number, epoch, loss, made, truth)
        log.info("epoch %d: %.5f", epoch, loss.item())


train(Downscaler().to(device), *weather(480))
