"""Optical flow from a cost volume: features of two frames are compared at 81 displacements."""

import torch
from torch import nn
from torch.nn import functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
REACH = 4


def cost_volume(first, second):
    """(batch, 81, height, width): how well each pixel of `first` fits its shifted neighbours in `second`."""
    c, h, w = first.shape[1:]
    padded = F.pad(second, [REACH] * 4)
    shifted = padded.unfold(2, h, 1).unfold(3, w, 1)  # (b, c, 9, 9, h, w), a view
    return torch.einsum("bchw,bcyxhw->byxhw", first, shifted).flatten(1, 2) / c


class FlowNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 5, stride=2, padding=2),
            nn.LeakyReLU(0.1),
            nn.Conv2d(width, width, 3, stride=2, padding=1),
        )
        self.estimate = nn.Sequential(
            nn.Conv2d(81, 32, 3, padding=1), nn.LeakyReLU(0.1), nn.Conv2d(32, 2, 3, padding=1)
        )

    def forward(self, one, two):
        return self.estimate(F.leaky_relu(cost_volume(self.features(one), self.features(two)), 0.1))


def frames(count):
    """Pairs in which everything moves by a few pixels, and by how much."""
    one = F.interpolate(torch.rand(count, 3, 16, 16), size=64, mode="bilinear")
    moves = torch.randint(-8, 9, (count, 2))
    two = torch.stack([picture.roll(tuple(move), (1, 2)) for picture, move in zip(one, moves.tolist())])
    return one, two, moves.float().flip(1)[:, :, None, None] / 4


one, two, flow = (t.to(device) for t in frames(64))
net = FlowNet().to(device)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, fused=True)
for epoch in range(8):
    for chosen in torch.randperm(64).split(4):
        error = net(one[chosen], two[chosen]) - flow[chosen]
        loss = error.norm(dim=1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 2 == 0:
        print(f"epoch {epoch}: endpoint error {4 * loss.item():.3f} px")
