"""Predict links between ingredients: a fixed graph, normalised once, propagated as a sparse matrix."""

import torch
from torch import nn
from torch.nn import functional as F


def make_graph(nodes, edges, seed):
    generator = torch.Generator().manual_seed(seed)
    group = torch.randint(0, 20, (nodes,), generator=generator)
    left = torch.randint(0, nodes, (4 * edges,), generator=generator)
    right = torch.randint(0, nodes, (4 * edges,), generator=generator)
    alike = (group[left] == group[right]) | (torch.rand(4 * edges, generator=generator) < 0.02)
    return torch.stack([left[alike], right[alike]])[:, :edges]


def normalised_adjacency(edges, nodes):
    both = torch.cat([edges, edges.flip(0), torch.arange(nodes).expand(2, -1)], 1)
    degree = torch.bincount(both[0], minlength=nodes).float().rsqrt()
    values = degree[both[0]] * degree[both[1]]
    return torch.sparse_coo_tensor(both, values, (nodes, nodes)).coalesce().to_sparse_csr()


class LinkPredictor(nn.Module):
    def __init__(self, nodes, width=64):
        super().__init__()
        self.embed = nn.Parameter(torch.randn(nodes, width) * 0.1)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(2))

    def forward(self, adjacency):
        h = self.embed
        for layer in self.layers:
            h = h + F.relu(adjacency @ layer(h))
        return F.normalize(h, dim=1)


def main(steps=400, batch_size=4096):
    torch.manual_seed(3)
    nodes = 8000
    edges = make_graph(nodes, 48_000, seed=3)
    adjacency = normalised_adjacency(edges, nodes)
    model = LinkPredictor(nodes)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, fused=True)
    for step in range(1, steps + 1):
        rows = torch.randint(0, edges.shape[1], (batch_size,))
        negatives = torch.randint(0, nodes, (batch_size,))
        h = model(adjacency)
        source = h.index_select(0, edges[0, rows])
        positive = (source * h.index_select(0, edges[1, rows])).sum(1)
        negative = (source * h.index_select(0, negatives)).sum(1)
        loss = F.softplus(5 * (negative - positive)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
