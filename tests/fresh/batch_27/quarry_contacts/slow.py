"""Forces between stones of a quarry wall, from a graph attention network over dense adjacencies."""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn


def build_walls(walls, stones, seed):
    generator = torch.Generator().manual_seed(seed)
    place = torch.rand(walls, stones, 2, generator=generator)
    weight = torch.rand(walls, stones, 1, generator=generator) + 0.5
    distance = torch.cdist(place, place)
    touching = distance < 1.6 / math.sqrt(stones)
    above = place[:, None, :, 1] > place[:, :, None, 1]
    load = (touching & above).float() @ weight
    features = torch.cat([place, weight, touching.sum(-1, keepdim=True) / 10], dim=-1)
    return features, touching, (load - load.mean()) / load.std()


class GraphAttention(nn.Module):
    def __init__(self, inputs, outputs, heads, slope=0.2):
        super().__init__()
        self.heads, self.outputs, self.slope = heads, outputs, slope
        self.project = nn.Linear(inputs, heads * outputs, bias=False)
        self.attend = nn.Parameter(torch.empty(heads, 2 * outputs))
        nn.init.xavier_uniform_(self.attend)

    def scores(self, nodes):
        count = nodes.shape[2]
        receivers = nodes.unsqueeze(3).expand(-1, -1, -1, count, -1)
        senders = nodes.unsqueeze(2).expand(-1, -1, count, -1, -1)
        pairs = torch.cat([receivers, senders], dim=-1)
        return torch.einsum("bhijf,hf->bhij", pairs, self.attend)

    def forward(self, x, adjacency):
        nodes = self.project(x).unflatten(-1, (self.heads, self.outputs)).transpose(1, 2)
        scores = F.leaky_relu(self.scores(nodes), self.slope)
        scores = scores.masked_fill(~adjacency.unsqueeze(1), -1e9)
        mixed = scores.softmax(dim=-1) @ nodes
        return mixed.transpose(1, 2).flatten(2)


class FeedForward(nn.Module):
    def __init__(self, width, factor=4):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.layers = nn.Sequential(
            nn.Linear(width, factor * width),
            nn.SiLU(),
            nn.Linear(factor * width, width),
        )

    def forward(self, x):
        return x + self.layers(self.norm(x))


class WallNet(nn.Module):
    def __init__(self, features, hidden, heads, layers):
        super().__init__()
        widths = [features] + [hidden * heads] * layers
        self.layers = nn.ModuleList(GraphAttention(width, hidden, heads) for width in widths[:-1])
        self.skips = nn.ModuleList(nn.Linear(width, hidden * heads) for width in widths[:-1])
        self.norms = nn.ModuleList(nn.LayerNorm(hidden * heads) for _ in range(layers))
        self.mlps = nn.ModuleList(FeedForward(hidden * heads) for _ in range(layers))
        self.readout = nn.Sequential(
            nn.Linear(hidden * heads, 128),
            nn.SiLU(),
            nn.Linear(128, 1),
        )

    def forward(self, x, adjacency):
        for layer, skip, norm, mlp in zip(self.layers, self.skips, self.norms, self.mlps, strict=True):
            x = mlp(norm(F.elu(layer(x, adjacency)) + skip(x)))
        return self.readout(x)


def split(tensors, size):
    return [tensor[:size] for tensor in tensors], [tensor[size:] for tensor in tensors]


def train(args):
    torch.manual_seed(args.seed)
    data = build_walls(args.walls, args.stones, args.seed)
    valid, (features, adjacency, load) = split(data, args.walls // 10)
    model = WallNet(features.shape[-1], args.hidden, args.heads, args.layers)
    optimizer = torch.optim.RAdam(model.parameters(), lr=args.lr)
    best = math.inf
    for epoch in range(args.epochs):
        for chosen in torch.randperm(len(features)).split(args.batch_size):
            predicted = model(features[chosen], adjacency[chosen])
            loss = F.mse_loss(predicted, load[chosen])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            error = F.l1_loss(model(valid[0], valid[1]), valid[2]).item()
        best = min(best, error)
        print(f"epoch {epoch + 1}/{args.epochs}: error {error:.4f} (best {best:.4f})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--walls", type=int, default=800)
    parser.add_argument("--stones", type=int, default=24)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=40)
    train(parser.parse_args())
