"""A language model on long contexts, with its attention as in the paper."""

import torch
from torch import nn
from torch.nn import functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

batch_size, context, width, heads, depth, steps = (
    (8, 1024, 512, 8, 4, 100) if device == "cuda" else (2, 64, 32, 4, 2, 40)
)
text = torch.randint(0, 512, (500_000,), device=device)
offsets = torch.arange(context + 1, device=device)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, heads, c // heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(self.attend(q, k, v).transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))


model = nn.Sequential(nn.Embedding(512, width), *[Block() for _ in range(depth)], nn.Linear(width, 512)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

for step in range(steps):
    starts = torch.randint(0, len(text) - context - 1, (batch_size, 1), device=device)
    tokens = text[starts + offsets]
    with torch.autocast(device, dtype=torch.bfloat16):
        logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step}: loss {loss.item():.3f}")
