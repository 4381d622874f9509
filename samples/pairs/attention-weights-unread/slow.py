"""Set prediction: learnt queries read a set of points by cross-attention, as detection transformers do."""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


class Decoder(nn.Module):
    def __init__(self, width=96, heads=6):
        super().__init__()
        self.self_attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.cross_attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3)])
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, queries, memory):
        x = self.norms[0](queries)
        queries = queries + self.self_attention(x, x, x)[0]
        x, _ = self.cross_attention(self.norms[1](queries), memory, memory)
        queries = queries + x
        return queries + self.mlp(self.norms[2](queries))


class SetPredictor(nn.Module):
    def __init__(self, width=96, queries=100, layers=2):
        super().__init__()
        self.points = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width))
        self.queries = nn.Parameter(torch.randn(queries, width) * 0.02)
        self.decoders = nn.ModuleList([Decoder(width) for _ in range(layers)])
        self.head = nn.Linear(width, 4)

    def forward(self, cloud):
        memory = self.points(cloud)
        queries = self.queries.expand(len(cloud), -1, -1)
        for decoder in self.decoders:
            queries = decoder(queries, memory)
        return self.head(queries)


model = SetPredictor().to(device)
optimizer = torch.optim.AdamW(
    [
        {"params": model.points.parameters(), "lr": 1e-5},
        {"params": [model.queries, *model.decoders.parameters(), *model.head.parameters()]},
    ],
    lr=1e-4,
    fused=True,
)
for step in range(100):
    cloud = torch.randn(4, 256, 3, device=device)
    target = torch.cat([cloud[:, :100], cloud[:, :100].norm(dim=-1, keepdim=True)], -1)
    loss = nn.functional.l1_loss(model(cloud), target)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    if step % 25 == 0:
        print(f"{step} {loss.item():.4f}")
