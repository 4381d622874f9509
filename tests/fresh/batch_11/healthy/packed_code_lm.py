"""A causal language model of code: documents are tokenized once and packed into rows without padding."""

import random

import torch
import torch.nn.functional as F
from torch import nn


def write_functions(count, seed):
    rng = random.Random(seed)
    names, operations = ["x", "y", "total", "rows", "step"], ["+", "-", "*", "//"]
    out = []
    for i in range(count):
        a, b = rng.sample(names, 2)
        body = "\n".join(
            f"    {a} = {a} {rng.choice(operations)} {rng.randint(1, 99)}" for _ in range(rng.randint(1, 9))
        )
        out.append(f"def f{i % 100}({a}, {b}):\n{body}\n    return {a} {rng.choice(operations)} {b}\n\x00")
    return out


def pack(texts, length):
    """Bytes of all texts, one after the other, as rows of the same length plus one."""
    stream = torch.frombuffer(bytearray("".join(texts).encode()), dtype=torch.uint8)
    count = (len(stream) - 1) // length
    return stream[: count * length + 1].unfold(0, length + 1, length)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x, cos, sin):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = (
            t * cos + torch.cat([-t[..., t.shape[-1] // 2 :], t[..., : t.shape[-1] // 2]], -1) * sin for t in (q, k)
        )
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(h.transpose(1, 2).flatten(2))


class GPT(nn.Module):
    def __init__(self, vocabulary=256, width=128, depth=3, heads=4, length=128):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.attention = nn.ModuleList(Attention(width, heads) for _ in range(depth))
        self.mlp = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(depth)
        )
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2 * depth + 1))
        half = width // heads // 2
        angles = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(half) / half)
        self.register_buffer("cos", angles.cos().repeat(1, 2), persistent=False)
        self.register_buffer("sin", angles.sin().repeat(1, 2), persistent=False)

    def forward(self, ids):
        x = self.embed(ids)
        for i, (attention, mlp) in enumerate(zip(self.attention, self.mlp, strict=True)):
            x = x + attention(self.norms[2 * i](x), self.cos, self.sin)
            x = x + mlp(self.norms[2 * i + 1](x))
        return F.linear(self.norms[-1](x), self.embed.weight)


def main(steps=160, batch=12):
    torch.manual_seed(0)
    rows = pack(write_functions(3000, seed=2), 128)
    model = GPT()
    nn.init.normal_(model.embed.weight, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), fused=True)
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 40))
    for step in range(steps):
        chunk = rows[torch.randint(len(rows), (batch,))].long()
        loss = F.cross_entropy(model(chunk[:, :-1]).flatten(0, 1), chunk[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        warm.step()
        if step % 40 == 39:
            print(f"step {step + 1}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
