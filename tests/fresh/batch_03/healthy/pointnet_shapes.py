"""PointNet on surfaces of simple solids: shared layers over points, a maximum over each cloud."""

import torch
from torch import nn
from torch.nn import functional as F

POINTS, CLASSES = 128, 4


class PointNet(nn.Module):
    """The shared layers see all points of all clouds as one matrix."""

    def __init__(self, widths=(64, 128, 192)):
        super().__init__()
        layers, inp = [], 3
        for width in widths:
            layers += [nn.Linear(inp, width, bias=False), nn.BatchNorm1d(width), nn.ReLU(inplace=True)]
            inp = width
        self.shared = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Linear(inp, 96), nn.ReLU(inplace=True), nn.Linear(96, CLASSES))

    def forward(self, clouds):
        features = self.shared(clouds.reshape(-1, 3))
        return self.head(features.view(len(clouds), POINTS, -1).amax(dim=1))


def solids(count):
    """Spheres, cubes, cylinders and cones, squeezed and noisy."""
    labels = torch.randint(0, CLASSES, (count,))
    direction = F.normalize(torch.randn(count, POINTS, 3), dim=2)
    cube = direction / direction.abs().amax(dim=2, keepdim=True)
    angle, height = 6.28 * torch.rand(count, POINTS), 2 * torch.rand(count, POINTS) - 1
    round_side = torch.stack([angle.cos(), angle.sin(), height], dim=2)
    cone = torch.stack([angle.cos() * (1 - height) / 2, angle.sin() * (1 - height) / 2, height], dim=2)
    clouds = torch.stack([direction, cube, round_side, cone])[labels, torch.arange(count)]
    clouds = clouds * (0.7 + 0.6 * torch.rand(count, 1, 3)) + 0.03 * torch.randn(count, POINTS, 3)
    return clouds, labels


def turned(clouds):
    """A random turn about the vertical axis, one for each cloud."""
    angle = 6.28 * torch.rand(len(clouds))
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros(len(clouds))
    matrices = torch.stack([cos, -sin, zero, sin, cos, zero, zero, zero, zero + 1], dim=1).view(-1, 3, 3)
    return torch.bmm(clouds, matrices)


if __name__ == "__main__":
    torch.manual_seed(9)
    clouds, labels = solids(1536)
    test_clouds, test_labels = solids(256)
    net = PointNet()
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3, fused=True)
    for epoch in range(6):
        for rows in torch.randperm(len(clouds)).split(32):
            loss = F.cross_entropy(net(turned(clouds[rows])), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        net.eval()
        with torch.inference_mode():
            accuracy = (net(test_clouds).argmax(dim=1) == test_labels).float().mean().item()
        net.train()
        print(f"epoch {epoch}: loss {loss.item():.4f}, test accuracy {accuracy:.3f}")
