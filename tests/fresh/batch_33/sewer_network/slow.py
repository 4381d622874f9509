"""Flow through the manholes of a sewer network after rain: message passing over the pipes between them."""

import argparse
import math

import numpy as np
import torch
from torch import nn


class SewerNetwork:
    """A random tree of pipes with some loops, and a made-up law for the flow that rain causes."""

    def __init__(self, manholes: int, loops: int, seed: int):
        rng = np.random.default_rng(seed)
        parents = [(child, int(rng.integers(max(0, child - 12), child))) for child in range(1, manholes)]
        extra = [tuple(map(int, rng.choice(manholes, 2, replace=False))) for _ in range(loops)]
        both_ways = [pair for a, b in (*parents, *extra) for pair in ((a, b), (b, a))]
        self.manholes = manholes
        self.edges = torch.tensor(both_ways).t().contiguous()
        self.static = torch.from_numpy(rng.normal(size=(manholes, 5)).astype("float32"))
        self.rng = rng

    def incoming(self) -> list[torch.Tensor]:
        """For each manhole the pipes that lead to it."""
        target = self.edges[1]
        return [torch.nonzero(target == node).flatten() for node in range(self.manholes)]

    def storms(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        rain = torch.from_numpy(self.rng.gamma(1.5, 1.0, size=(count, self.manholes)).astype("float32"))
        flow = rain.clone()
        source, target = self.edges
        for _ in range(3):
            passed = torch.zeros_like(flow).index_add_(1, target, flow[:, source] * 0.3)
            flow = rain + torch.tanh(passed)
        return rain, (flow - flow.mean()) / flow.std()


class PipeLayer(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, width))
        self.update = nn.GRUCell(width, width)

    def forward(self, h, edges, incoming):
        source, target = edges
        messages = self.message(torch.cat([h[:, source], h[:, target]], dim=-1))
        gathered = torch.stack([messages[:, pipes].sum(dim=1) for pipes in incoming], dim=1)
        new = self.update(gathered.flatten(0, 1), h.flatten(0, 1))
        return new.view_as(h)


class FlowNet(nn.Module):
    def __init__(self, static: int, width: int, rounds: int):
        super().__init__()
        self.enter = nn.Linear(static + 1, width)
        self.layers = nn.ModuleList(PipeLayer(width) for _ in range(rounds))
        self.leave = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, rain, static, edges, incoming):
        static = static.expand(len(rain), -1, -1)
        h = torch.relu(self.enter(torch.cat([rain.unsqueeze(-1), static], dim=-1)))
        for layer in self.layers:
            h = layer(h, edges, incoming)
        return self.leave(h).squeeze(-1)


def batches(rain, flow, size, generator):
    for index in torch.randperm(len(rain), generator=generator).split(size):
        if len(index) == size:
            yield rain[index], flow[index]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--manholes", type=int, default=160)
    parser.add_argument("--loops", type=int, default=30)
    parser.add_argument("--storms", type=int, default=720)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=27)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    network = SewerNetwork(args.manholes, args.loops, args.seed)
    rain, flow = network.storms(args.storms)
    incoming = network.incoming()
    model = FlowNet(network.static.size(1), args.width, args.rounds)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    generator = torch.Generator().manual_seed(args.seed)
    for epoch in range(args.epochs):
        squares, steps = torch.zeros(()), 0
        for wet, wanted in batches(rain, flow, args.batch_size, generator):
            predicted = model(wet, network.static, network.edges, incoming)
            loss = nn.functional.mse_loss(predicted, wanted)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            squares += loss.detach()
            steps += 1
        print(f"epoch {epoch}: RMSE {math.sqrt(squares.item() / steps):.4f}")


if __name__ == "__main__":
    main()
