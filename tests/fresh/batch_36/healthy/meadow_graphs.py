"""Which plants of a meadow feed the same bees: two layers of graph convolution on one fixed sparse matrix."""

import argparse
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def grow_meadow(plants: int, kinds: int, features: int, degree: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Plants of one kind are visited by the same bees more often; features say little about the kind."""
    generator = torch.Generator().manual_seed(seed)
    kind = torch.randint(kinds, (plants,), generator=generator)
    order = kind.argsort()
    starts = torch.searchsorted(kind[order], torch.arange(kinds + 1))
    source = torch.arange(plants).repeat_interleave(degree)
    span = (starts[1:] - starts[:-1])[kind[source]]
    inside = order[starts[kind[source]] + (torch.rand(len(source), generator=generator) * span).long()]
    anywhere = torch.randint(plants, source.shape, generator=generator)
    target = torch.where(torch.rand(source.shape, generator=generator) < 0.6, inside, anywhere)
    centres = torch.randn(kinds, features, generator=generator)
    x = 0.3 * centres[kind] + torch.randn(plants, features, generator=generator)
    return torch.stack([source, target]), x, kind


def normalised(edges: Tensor, nodes: int) -> Tensor:
    """The symmetric adjacency with loops, scaled by degrees, once and for all as a matrix of compressed rows."""
    loops = torch.arange(nodes).expand(2, -1)
    both = torch.cat([edges, edges.flip(0), loops], dim=1)
    matrix = torch.sparse_coo_tensor(both, torch.ones(both.shape[1]), (nodes, nodes)).coalesce()
    row, column = matrix.indices()
    scale = torch.zeros(nodes).index_add_(0, row, matrix.values()).rsqrt()
    values = matrix.values() * scale[row] * scale[column]
    return torch.sparse_coo_tensor(matrix.indices(), values, (nodes, nodes)).coalesce().to_sparse_csr()


class MeadowNet(nn.Module):
    def __init__(self, hidden: int, kinds: int):
        super().__init__()
        self.first = nn.LazyLinear(hidden)
        self.second = nn.Linear(hidden, hidden)
        self.head = nn.Linear(hidden, kinds)

    def forward(self, matrix: Tensor, smooth: Tensor) -> Tensor:
        h = F.relu(self.first(smooth))
        h = F.relu(matrix @ self.second(h))
        return self.head(h)


@torch.inference_mode()
def accuracy(model: MeadowNet, matrix: Tensor, smooth: Tensor, kind: Tensor, test: Tensor) -> float:
    model.eval()
    return (model(matrix, smooth)[test].argmax(1) == kind[test]).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plants", type=int, default=6000)
    parser.add_argument("--kinds", type=int, default=10)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--degree", type=int, default=6)
    parser.add_argument("--hidden", type=int, default=160)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--test-every", type=int, default=100)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--seed", type=int, default=301)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    edges, x, kind = grow_meadow(args.plants, args.kinds, args.features, args.degree, args.seed)
    matrix = normalised(edges, args.plants)
    smooth = matrix @ x
    known = torch.rand(args.plants) < 0.9
    train, test = known.nonzero().squeeze(1), (~known).nonzero().squeeze(1)
    wanted = kind[train]
    model = MeadowNet(args.hidden, args.kinds)
    model(matrix, smooth)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3, fused=True)
    with tempfile.TemporaryDirectory() as folder:
        best = 0.0
        for step in range(1, args.steps + 1):
            model.train()
            loss = F.cross_entropy(model(matrix, smooth)[train], wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % args.test_every == 0:
                right = accuracy(model, matrix, smooth, kind, test)
                print(f"step {step}: loss {loss.item():.4f}, accuracy {right:.3f}")
                if right > best:
                    best = right
                    torch.save(model.state_dict(), Path(folder, "meadow.pt"))


if __name__ == "__main__":
    main()
