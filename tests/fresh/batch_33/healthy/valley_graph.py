"""Which dialect a village of a valley speaks, from its neighbours on foot: GraphSAGE on sampled villages."""

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ValleyGraph:
    """Villages along valleys, with a fixed number of neighbours each, as one table of numbers."""

    def __init__(self, villages: int, neighbours: int, features: int, dialects: int, seed: int):
        g = torch.Generator().manual_seed(seed)
        place = torch.rand(villages, 2, generator=g)
        centres = torch.rand(dialects, 2, generator=g)
        self.dialect = torch.cdist(place, centres).argmin(1)
        near = [
            torch.cdist(part, place).topk(neighbours + 1, largest=False).indices[:, 1:] for part in place.split(512)
        ]
        self.neighbours = torch.cat(near)
        basis = torch.randn(dialects, features, generator=g)
        self.features = 0.4 * basis[self.dialect] + torch.randn(villages, features, generator=g)
        self.generator = g

    def sample(self, villages: Tensor, fanout: int) -> Tensor:
        """Some neighbours of each village, drawn for all of them at once."""
        columns = torch.randint(self.neighbours.size(1), (*villages.shape, fanout), generator=self.generator)
        return self.neighbours[villages.unsqueeze(-1), columns]


class SageLayer(nn.Module):
    def __init__(self, inside: int, outside: int):
        super().__init__()
        self.own = nn.Linear(inside, outside)
        self.others = nn.Linear(inside, outside, bias=False)

    def forward(self, x: Tensor, around: Tensor) -> Tensor:
        return self.own(x) + self.others(around.mean(-2))


class DialectNet(nn.Module):
    def __init__(self, features: int, width: int, dialects: int, dropout: float = 0.2):
        super().__init__()
        self.first = SageLayer(features, width)
        self.second = SageLayer(width, width)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, dialects)
        self.dropout = dropout

    def forward(self, x: Tensor, around: Tensor, farther: Tensor) -> Tensor:
        """Features of villages, of their neighbours, and of the neighbours of these."""
        near = F.relu(self.first(around, farther))
        own = F.relu(self.first(x, around))
        own = F.dropout(self.norm(self.second(own, near)), self.dropout, self.training)
        return self.head(F.relu(own))


def gather(graph: ValleyGraph, villages: Tensor, fanouts: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    near = graph.sample(villages, fanouts[0])
    far = graph.sample(near, fanouts[1])
    return graph.features[villages], graph.features[near], graph.features[far]


@torch.inference_mode()
def accuracy(model: DialectNet, graph: ValleyGraph, villages: Tensor, fanouts: tuple[int, int]) -> float:
    model.eval()
    guess = model(*gather(graph, villages, fanouts)).argmax(1)
    model.train()
    return (guess == graph.dialect[villages]).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--villages", type=int, default=15000)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--dialects", type=int, default=9)
    parser.add_argument("--width", type=int, default=288)
    parser.add_argument("--fanouts", type=int, nargs=2, default=(8, 5))
    parser.add_argument("--batch-size", type=int, default=400)
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=62)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    graph = ValleyGraph(args.villages, 16, args.features, args.dialects, args.seed)
    order = torch.randperm(args.villages)
    held_out, train = order[:1000], order[1000:]
    model = DialectNet(args.features, args.width, args.dialects)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    for epoch in range(args.epochs):
        total, steps = torch.zeros(()), 0
        for villages in train[torch.randperm(len(train))].split(args.batch_size):
            logits = model(*gather(graph, villages, args.fanouts))
            loss = F.cross_entropy(logits, graph.dialect[villages])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach()
            steps += 1
        right = accuracy(model, graph, held_out, args.fanouts)
        print(f"epoch {epoch}: loss {total.item() / steps:.3f}, held-out accuracy {right:.3f}")


if __name__ == "__main__":
    main()
