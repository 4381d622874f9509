"""A small language model whose eight attention heads share their keys and values."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

length, width, heads, shared, size, words = 192, 32, 8, 1, 64, 100
tokens = torch.randint(0, words, (480, length + 1)).cumsum(1) % words
loader = DataLoader(TensorDataset(tokens), batch_size=8, shuffle=True)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.q, self.out = nn.Linear(width, heads * size), nn.Linear(heads * size, width)
        self.kv = nn.Linear(width, 2 * shared * size)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        normed = self.norms[0](x)
        q = self.q(normed).unflatten(2, (heads, -1)).transpose(1, 2)
        k, v = self.kv(normed).unflatten(2, (2, shared, -1)).permute(2, 0, 3, 1, 4)
        k = k.repeat_interleave(heads // shared, dim=1)
        v = v.repeat_interleave(heads // shared, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


layers = [nn.Embedding(words, width), Block(), Block(), nn.LayerNorm(width), nn.Linear(width, words)]
model = nn.Sequential(*layers).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

for step, (batch,) in enumerate(loader):
    batch = batch.to(device)
    loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0:
        print(f"step {step}: loss {loss.item():.3f}")
