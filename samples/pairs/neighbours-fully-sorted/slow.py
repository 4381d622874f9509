"""Shapes from clouds of points with edge convolutions; the graph of nearest neighbours is drawn anew in every layer."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


def knn(x, k):
    """Indices of the k nearest points of each point, in feature space: (clouds, points, k)."""
    squares = x.pow(2).sum(-1)
    distance = squares[:, :, None] + squares[:, None, :] - 2 * x @ x.transpose(1, 2)
    return distance.argsort(dim=-1)[:, :, :k]


def edges(x, k):
    """Each point beside its differences from its neighbours: (clouds, points, k, 2 * width)."""
    with torch.no_grad():
        index = knn(x, k)
    cloud = torch.arange(len(x), device=x.device)[:, None, None]
    near = x[cloud, index]
    centre = x[:, :, None].expand_as(near)
    return torch.cat([centre, near - centre], -1)


class EdgeConv(nn.Module):
    def __init__(self, inner, outer, k):
        super().__init__()
        self.k = k
        self.linear = nn.Linear(2 * inner, outer, bias=False)
        self.norm = nn.LayerNorm(outer)

    def forward(self, x):
        return F.leaky_relu(self.norm(self.linear(edges(x, self.k))), 0.2).amax(2)


class DGCNN(nn.Module):
    def __init__(self, k, shapes):
        super().__init__()
        self.layers = nn.ModuleList([EdgeConv(3, 16, k), EdgeConv(16, 32, k)])
        self.classify = nn.Sequential(nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, shapes))

    def forward(self, x):
        seen = []
        for layer in self.layers:
            x = layer(x)
            seen.append(x)
        seen = torch.cat(seen, -1)
        return self.classify(torch.cat([seen.amax(1), seen.mean(1)], -1))


def clouds(count, points):
    """Ellipsoids, boxes, cones and sheets, turned about the upright axis."""
    shape = torch.randint(0, 4, (count,))
    x = torch.randn(count, points, 3)
    ball = F.normalize(x, dim=-1) * torch.tensor([1.0, 0.7, 0.5])
    box = x / x.abs().amax(-1, keepdim=True)
    cone = torch.cat([ball[..., :2] * (1 - box[..., 2:]) / 2, box[..., 2:]], -1)
    sheet = torch.cat([box[..., :2], 0.2 * (3 * box[..., :1]).sin()], -1)
    x = torch.stack([ball, box, cone, sheet], 1)[torch.arange(count), shape]
    angle = 6.283 * torch.rand(count, 1)
    east, north = x[..., 0] * angle.cos() - x[..., 1] * angle.sin(), x[..., 0] * angle.sin() + x[..., 1] * angle.cos()
    return torch.stack([east, north, x[..., 2]], -1) + 0.02 * torch.randn(count, points, 3), shape


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=192)
    parser.add_argument("--neighbours", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    opt = parser.parse_args()
    torch.manual_seed(opt.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, y = (tensor.to(device) for tensor in clouds(720, opt.points))
    net = DGCNN(opt.neighbours, shapes=4).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3, fused=True)
    for epoch in range(2):
        right = torch.zeros((), device=device)
        for rows in torch.randperm(len(x), device=device).split(opt.batch_size):
            scores = net(x[rows])
            loss = F.cross_entropy(scores, y[rows], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == y[rows]).sum()
        print(f"epoch {epoch}: loss {loss.item():.4f}, right {right.item() / len(x):.3f}")
