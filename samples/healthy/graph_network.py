"""Message passing on one graph: neighbours are summed by a single indexed addition per layer."""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

nodes, edges, width = 4000, 20_000, 128
features = torch.randn(nodes, width, device=device)
source, target = torch.randint(0, nodes, (2, edges), device=device)
labels = features[:, :6].argmax(1)
degree = torch.zeros(nodes, 1, device=device).index_add_(0, target, torch.ones(edges, 1, device=device)).clamp(min=1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.own, self.neighbours = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, mean):
        return torch.relu(self.own(x) + self.neighbours(mean))


def gathered(x):
    """The mean over each node's neighbours."""
    return torch.zeros_like(x).index_add_(0, target, x.index_select(0, source)) / degree


layers = nn.ModuleList([Layer(), Layer()]).to(device)
head = nn.Linear(width, 6).to(device)
optimizer = torch.optim.Adam([*layers.parameters(), *head.parameters()], lr=1e-3, fused=True)

around = gathered(features)  # the features never change, so their mean does not either

for step in range(80):
    with torch.autocast(device, dtype=torch.bfloat16):
        x = layers[0](features, around).float()
        x = layers[1](x, gathered(x)).float()
        logits = head(x)
    loss = nn.functional.cross_entropy(logits.float(), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}: loss {loss.item():.3f}")
