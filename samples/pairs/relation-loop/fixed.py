"""A relational graph network on a small knowledge graph: every kind of relation has a matrix of its own."""

import torch
from torch import nn

torch.manual_seed(0)
NODES, EDGES, RELATIONS, CLASSES = 1200, 6000, 40, 5

source, target = torch.randint(0, NODES, (2, EDGES))
relation = torch.randint(0, RELATIONS, (EDGES,))
features = torch.randn(NODES, 32)
labels = features[:, :CLASSES].argmax(1)
train_mask = torch.rand(NODES) < 0.6


class RelationalConv(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(RELATIONS, inner, outer) / inner**0.5)
        self.own = nn.Linear(inner, outer)

    def forward(self, x):
        out = self.own(x)
        transformed = torch.einsum("ni,rio->rno", x, self.weight)
        return out.index_add(0, target, transformed[relation, source] / 5)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = RelationalConv(32, 32), RelationalConv(32, CLASSES)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(120):
    net.train()
    logits = net(features)
    loss = nn.functional.cross_entropy(logits[train_mask], labels[train_mask])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 20 == 0:
        accuracy = (logits.argmax(1) == labels)[~train_mask].float().mean()
        print(f"epoch {epoch:3d}  loss {loss.item():.4f}  held-out accuracy {accuracy.item():.3f}")
