"""A character-level GPT: fused attention, fused AdamW, bfloat16, the loss printed every 40 steps."""

import torch
from torch import nn
from torch.nn import functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

batch_size, context, width, heads, depth, vocabulary = 8, 128, 128, 4, 2, 96
text = torch.randint(0, vocabulary, (200_000,), device=device)
offsets = torch.arange(context + 1, device=device)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, heads, c // heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))


model = nn.Sequential(nn.Embedding(vocabulary, width), *[Block() for _ in range(depth)], nn.Linear(width, vocabulary))
model = model.to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

for step in range(120):
    starts = torch.randint(0, len(text) - context - 1, (batch_size, 1), device=device)
    tokens = text[starts + offsets]
    with torch.autocast(device, dtype=torch.bfloat16):
        logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.float().reshape(-1, vocabulary), tokens[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}: loss {loss.item():.3f}")
