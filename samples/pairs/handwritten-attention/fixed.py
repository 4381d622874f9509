"""Character-level language model, top to bottom."""

import torch
from torch import nn
from torch.nn import functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

batch_size, context, width, heads, depth = 4, 256, 64, 4, 2
text = torch.randint(0, 96, (50_000,))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, heads, c // heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention()
        self.norm2, self.mlp = (
            nn.LayerNorm(width),
            nn.Sequential(nn.Linear(width, 256), nn.GELU(), nn.Linear(256, width)),
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


model = nn.Sequential(nn.Embedding(96, width), *[Block() for _ in range(depth)], nn.Linear(width, 96)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

for step in range(100):
    start = torch.randint(0, len(text) - context - 1, (batch_size,))
    x = torch.stack([text[i : i + context] for i in start]).to(device)
    y = torch.stack([text[i + 1 : i + context + 1] for i in start]).to(device)
    logits = model(x)
    loss = F.cross_entropy(logits.view(-1, 96), y.view(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0:
        print(f"step {step}: loss {loss.item():.3f}")
