"""A radiance field of a ball: rays through random pixels of twenty views, integrated through a small network."""

import math

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
SIDE, VIEWS, RAYS, DEPTHS = 240, 20, 128, 24


def pose(turn):
    """A camera on a circle around the origin, looking at it: (3, 4)."""
    back = torch.tensor([math.sin(turn), 0.3, math.cos(turn)])
    right = torch.linalg.cross(torch.tensor([0.0, 1.0, 0.0]), back)
    axes = torch.stack([right, torch.linalg.cross(back, right), back])
    return torch.cat([axes / axes.norm(dim=1, keepdim=True), 3 * back[None]]).T.to(device)


def rays(camera):
    """Where the ray of each pixel starts and its direction: (pixels, 3) each."""
    row, column = torch.meshgrid(*[torch.arange(SIDE, device=device)] * 2, indexing="ij")
    toward = torch.stack([(column - SIDE / 2) / SIDE, (SIDE / 2 - row) / SIDE, -torch.ones_like(row)], -1)
    toward = (toward[..., None, :] * camera[:, :3]).sum(-1).view(-1, 3)
    return camera[:, 3].expand_as(toward), toward / toward.norm(dim=1, keepdim=True)


def picture(start, toward):
    """What the camera sees: a ball of radius one, brighter from above, in front of black."""
    along = (start * toward).sum(1)
    root = along.square() - start.square().sum(1) + 1
    hit = start + (-along - root.clamp(min=0).sqrt())[:, None] * toward
    return (root > 0) * (0.6 + 0.4 * hit[:, 1])


class Field(nn.Module):
    """Density and brightness of points."""

    def __init__(self, octaves=5, width=96):
        super().__init__()
        self.register_buffer("octave", 2.0 ** torch.arange(octaves))
        self.net = nn.Sequential(
            nn.Linear(6 * octaves, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)
        )

    def forward(self, start, toward):
        depth = torch.linspace(1.5, 4.5, DEPTHS, device=start.device)
        points = start[:, None] + depth[:, None] * toward[:, None]
        waves = (points[..., None] * self.octave).flatten(2)
        density, brightness = self.net(torch.cat([waves.sin(), waves.cos()], 2)).unbind(2)
        stopped = 1 - torch.exp(-nn.functional.softplus(density) * 3 / DEPTHS)
        left = torch.cumprod(1 - stopped + 1e-6, 1) / (1 - stopped + 1e-6)
        return (left * stopped * brightness.sigmoid()).sum(1)


cameras = [pose(6.283 * view / VIEWS) for view in range(VIEWS)]
pictures = [picture(*rays(camera)) for camera in cameras]
field = Field().to(device)
optimizer = torch.optim.Adam(field.parameters(), lr=1e-3, fused=True)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.995)
for step in range(200):
    view = int(torch.randint(0, VIEWS, ()))
    start, toward = rays(cameras[view])
    pixels = torch.randint(0, SIDE * SIDE, (RAYS,), device=device)
    loss = nn.functional.mse_loss(field(start[pixels], toward[pixels]), pictures[view][pixels])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 50 == 0:
        print(f"step {step}: {loss.item():.5f}")
