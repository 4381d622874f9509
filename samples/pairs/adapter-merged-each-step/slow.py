"""Fine-tunes a small language model with low-rank adapters in its linear layers; everything else stays as it was."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    vocabulary: int = 600
    width: int = 384
    heads: int = 6
    layers: int = 3
    length: int = 32
    rank: int = 8
    alpha: float = 16.0
    batch: int = 6
    steps: int = 200
    lr: float = 1e-3


class LoRALinear(nn.Module):
    """A frozen linear layer plus a correction of low rank."""

    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base, self.scale = base, alpha / rank
        self.down = nn.Parameter(torch.randn(rank, base.in_features, dtype=base.weight.dtype) / math.sqrt(rank))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank, dtype=base.weight.dtype))

    def forward(self, x):
        weight = self.base.weight + self.scale * (self.up @ self.down)
        return F.linear(x, weight, self.base.bias)


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads = cfg.heads
        self.norm1, self.norm2 = nn.LayerNorm(cfg.width), nn.LayerNorm(cfg.width)
        self.qkv, self.proj = nn.Linear(cfg.width, 3 * cfg.width), nn.Linear(cfg.width, cfg.width)
        self.up, self.down = nn.Linear(cfg.width, 4 * cfg.width), nn.Linear(4 * cfg.width, cfg.width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class LanguageModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.token, self.place = nn.Embedding(cfg.vocabulary, cfg.width), nn.Embedding(cfg.length, cfg.width)
        self.blocks = nn.Sequential(*(Block(cfg) for _ in range(cfg.layers)))
        self.norm, self.head = nn.LayerNorm(cfg.width), nn.Linear(cfg.width, cfg.vocabulary, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.token(tokens) + self.place.weight[: tokens.shape[1]])))


def add_adapters(model, cfg):
    """Freezes the model and wraps the linear layers of its blocks."""
    model.requires_grad_(False)
    for block in model.blocks:
        for name in ("qkv", "proj", "up", "down"):
            setattr(block, name, LoRALinear(getattr(block, name), cfg.rank, cfg.alpha))
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def main(cfg):
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = LanguageModel(cfg).to(torch.bfloat16)
    adapters = add_adapters(model, cfg)
    model.to(device)
    print(f"{sum(p.numel() for p in adapters):,} of {sum(p.numel() for p in model.parameters()):,} are trained")
    optimizer = torch.optim.AdamW(adapters, lr=cfg.lr, weight_decay=0.0, fused=True)
    start = torch.randint(0, cfg.vocabulary, (cfg.steps, cfg.batch, 1), device=device)
    texts = (start + 7 * torch.arange(cfg.length + 1, device=device)) % cfg.vocabulary
    for step, text in enumerate(texts):
        scores = model(text[:, :-1])
        loss = F.cross_entropy(scores.float().flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            print(f"step {step + 1}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main(Config())
