"""Graph attention on several proteins at a time: nodes are residues, edges join those that are close."""

import torch
from torch import nn
from torch.nn import functional as F


class Proteins:
    """All graphs lie end to end in a few tensors; edges are found once."""

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.sizes = torch.randint(40, 90, (count,), generator=generator)
        self.starts = torch.cat((torch.zeros(1, dtype=torch.long), self.sizes.cumsum(0)))
        self.kinds = torch.randint(0, 20, (int(self.starts[-1]),), generator=generator)
        self.edges = []
        for size in self.sizes.tolist():
            chain = torch.randn(size, 3, generator=generator).cumsum(dim=0)
            near = torch.cdist(chain, chain) < 3.5
            self.edges.append(near.nonzero().t().contiguous())
        charge = torch.linspace(-1, 1, 20)
        around = [torch.zeros(size).index_add(0, e[0], charge[self.nodes(i)[e[1]]]) for i, (size, e) in self.items()]
        self.labels = torch.cat([(value > 0).long() for value in around])

    def items(self):
        return enumerate(zip(self.sizes.tolist(), self.edges))

    def nodes(self, index):
        return self.kinds[self.starts[index] : self.starts[index + 1]]

    def batch(self, rows):
        """One graph that holds those of the rows side by side."""
        sizes = self.sizes[rows]
        shift = (sizes.cumsum(0) - sizes).tolist()
        rows = rows.tolist()
        spans = [torch.arange(self.starts[row], self.starts[row + 1]) for row in rows]
        edges = torch.cat([self.edges[row] + offset for row, offset in zip(rows, shift)], dim=1)
        nodes = torch.cat(spans)
        return self.kinds[nodes], edges, self.labels[nodes]


class GATLayer(nn.Module):
    def __init__(self, inputs, outputs, heads):
        super().__init__()
        self.heads, self.size = heads, outputs // heads
        self.project = nn.Linear(inputs, outputs, bias=False)
        self.source = nn.Parameter(0.1 * torch.randn(heads, self.size))
        self.target = nn.Parameter(0.1 * torch.randn(heads, self.size))

    def forward(self, x, edges):
        target, source = edges
        h = self.project(x).view(len(x), self.heads, self.size)
        scores = F.leaky_relu((h * self.target).sum(-1)[target] + (h * self.source).sum(-1)[source], 0.2)
        weights = scores.clamp(max=20).exp()
        total = torch.zeros(len(x), self.heads).index_add(0, target, weights)
        weights = (weights / total[target])[:, :, None]
        out = torch.zeros_like(h).index_add(0, target, weights * h[source])
        return out.flatten(1)


class GAT(nn.Module):
    def __init__(self, hidden=64, heads=4):
        super().__init__()
        self.embedding = nn.Embedding(20, hidden)
        self.layers = nn.ModuleList(GATLayer(hidden, hidden, heads) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(2))
        self.out = nn.Linear(hidden, 2)

    def forward(self, kinds, edges):
        x = self.embedding(kinds)
        for layer, norm in zip(self.layers, self.norms):
            x = x + F.elu(layer(norm(x), edges))
        return self.out(x)


def fit(model, data, train_rows, epochs, batch_size):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3, fused=True)
    for epoch in range(epochs):
        model.train()
        losses = []
        for rows in train_rows[torch.randperm(len(train_rows))].split(batch_size):
            kinds, edges, labels = data.batch(rows)
            loss = F.cross_entropy(model(kinds, edges), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        print(f"epoch {epoch}: loss {torch.stack(losses).mean().item():.4f}")


@torch.inference_mode()
def test(model, data, rows):
    model.eval()
    kinds, edges, labels = data.batch(rows)
    return (model(kinds, edges).argmax(dim=1) == labels).float().mean().item()


if __name__ == "__main__":
    torch.manual_seed(20)
    proteins = Proteins(600, seed=21)
    network = GAT()
    fit(network, proteins, torch.arange(540), epochs=6, batch_size=20)
    print(f"accuracy {test(network, proteins, torch.arange(540, 600)):.3f}")
