"""A small decoder that writes reels for the accordion, note by note."""

from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F


@dataclass
class ReelConfig:
    vocab: int = 90
    block_size: int = 256
    layers: int = 3
    heads: int = 6
    width: int = 96
    batch_size: int = 6
    steps: int = 110
    lr: float = 1e-3
    warmup: int = 20
    weight_decay: float = 0.05
    seed: int = 41


def compose(config, notes=60_000):
    """Phrases that are repeated and transposed, with an ornament now and then."""
    generator = torch.Generator().manual_seed(config.seed)
    phrases = torch.randint(20, 60, (12, 16), generator=generator)
    picks = torch.randint(0, 12, (notes // 16,), generator=generator).repeat_interleave(2)[: notes // 16]
    tune = phrases[picks] + torch.randint(0, 3, (notes // 16, 1), generator=generator) * 5
    ornament = torch.rand(tune.shape, generator=generator) < 0.05
    return torch.where(ornament, tune + 12, tune).flatten()


class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.proj = nn.Linear(config.width, config.width)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).split(C, dim=2)
        q = q.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        k = k.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        v = v.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.width)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = nn.LayerNorm(config.width)
        self.mlp = nn.Sequential(
            nn.Linear(config.width, 4 * config.width), nn.GELU(), nn.Linear(4 * config.width, config.width)
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class ReelGPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.notes = nn.Embedding(config.vocab, config.width)
        self.places = nn.Embedding(config.block_size, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.ln_f = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocab, bias=False)
        self.head.weight = self.notes.weight
        self.apply(self._init)

    @staticmethod
    def _init(module):
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, notes, targets):
        x = self.notes(notes) + self.places.weight[: notes.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.ln_f(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Trainer:
    def __init__(self, config, model, tune):
        self.config, self.model, self.tune = config, model, tune
        decayed = [p for p in model.parameters() if p.dim() > 1]
        others = [p for p in model.parameters() if p.dim() <= 1]
        groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=config.lr, betas=(0.9, 0.95), fused=True)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda s: min(1.0, (s + 1) / config.warmup))
        self.windows = tune.unfold(0, config.block_size + 1, 1)

    def batch(self):
        starts = torch.randint(0, len(self.windows), (self.config.batch_size,))
        chosen = self.windows[starts]
        return chosen[:, :-1], chosen[:, 1:]

    def run(self):
        for step in range(self.config.steps):
            loss = self.model(*self.batch())
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            if (step + 1) % 25 == 0:
                print(f"step {step + 1}: loss {loss.item():.4f}")


if __name__ == "__main__":
    settings = ReelConfig()
    torch.manual_seed(settings.seed)
    Trainer(settings, ReelGPT(settings), compose(settings)).run()
