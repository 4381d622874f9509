"""Topics of papers from who cites whom: a graph convolutional network on the whole graph, as Kipf and Welling do it."""

import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
PAPERS, CITATIONS, TOPICS, WORDS = 2700, 5400, 7, 300


def citations(topic):
    """Papers mostly cite papers of their own topic; both directions count, and each paper knows itself."""
    source, target = torch.randint(0, PAPERS, (2, CITATIONS * 7))
    kept = (topic[source] == topic[target]) | (torch.rand(len(source)) < 0.03)
    source, target = source[kept][:CITATIONS], target[kept][:CITATIONS]
    own = torch.arange(PAPERS)
    edges = torch.stack([torch.cat([source, target, own]), torch.cat([target, source, own])])
    return edges.unique(dim=1)


def normalised(edges):
    """Each edge by the square roots of the degrees at its ends."""
    target, source = edges
    degree = torch.bincount(target, minlength=PAPERS).float()
    weight = (degree[target] * degree[source]).rsqrt()
    return torch.sparse_coo_tensor(edges, weight, (PAPERS, PAPERS), check_invariants=False).coalesce()


class GraphConvolution(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)

    def forward(self, x, adjacency):
        return torch.sparse.mm(adjacency, self.linear(x))


class GCN(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.first, self.second = GraphConvolution(WORDS, hidden), GraphConvolution(hidden, TOPICS)

    def forward(self, x, adjacency):
        return self.second(self.first(x, adjacency).relu(), adjacency)


topic = torch.randint(0, TOPICS, (PAPERS,))
words = (torch.rand(PAPERS, WORDS) < 0.02 + 0.1 * (torch.rand(TOPICS, WORDS) < 0.1)[topic]).float().to(device)
adjacency = normalised(citations(topic)).to(device)
topic = topic.to(device)
model = GCN().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4, fused=True)
train, test = torch.arange(PAPERS, device=device).split([400, PAPERS - 400])
for epoch in range(200):
    scores = model(words, adjacency)
    loss = nn.functional.cross_entropy(scores[train], topic[train])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 50 == 0:
        right = (scores[test].argmax(1) == topic[test]).float().mean()
        print(f"epoch {epoch}: loss {loss.item():.4f}, right {right.item():.3f}")
