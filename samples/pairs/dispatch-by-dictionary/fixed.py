"""A mixture of experts with top-2 routing and a limited capacity, on sequences of tokens."""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


class Mixture(nn.Module):
    def __init__(self, width=64, experts=4, capacity=2200):
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width)) for _ in range(experts)]
        )
        self.capacity = capacity

    def assign(self, chosen):
        """For each expert the tokens it works on, first come first served."""
        return [(chosen == e).any(1).nonzero().flatten()[: self.capacity] for e in range(len(self.experts))]

    def forward(self, x):
        flat = x.flatten(0, 1)
        gates = self.router(flat).softmax(-1)
        chosen = gates.topk(2).indices
        out = torch.zeros_like(flat)
        for e, tokens in enumerate(self.assign(chosen)):
            out = out.index_add(0, tokens, gates[tokens, e : e + 1] * self.experts[e](flat[tokens]))
        return x + out.view_as(x)


class Model(nn.Module):
    def __init__(self, vocabulary=60, width=32):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.mixtures = nn.Sequential(Mixture(width), Mixture(width))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.mixtures(self.embedding(tokens)))


model = Model().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
for step in range(120):
    tokens = torch.randint(0, 60, (64, 64), device=device)
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), (tokens * 7 % 60).flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}: {loss.item():.4f}")
