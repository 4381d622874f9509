"""A language model for source code: long sequences, few at a time, with gradients accumulated over several passes."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class TrainConfig:
    vocabulary: int = 8_000
    width: int = 256
    layers: int = 2
    heads: int = 4
    context: int = 32
    micro_batch: int = 1
    accumulate: int = 6
    updates: int = 90
    clip: float = 1.0
    lr: float = 3e-4


def tokens(count, vocabulary, seed):
    """Tokens that often repeat what stood a few places before, as names in programs do."""
    g = torch.Generator().manual_seed(seed)
    rare = (vocabulary * torch.rand(count, generator=g).pow(3)).long()
    again = torch.rand(count, generator=g) < 0.4
    rare[8:] = torch.where(again[8:], rare[:-8], rare[8:])
    return rare


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class CodeModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.token = nn.Embedding(cfg.vocabulary, cfg.width)
        self.place = nn.Embedding(cfg.context, cfg.width)
        self.blocks = nn.Sequential(*(Block(cfg.width, cfg.heads) for _ in range(cfg.layers)))
        self.norm = nn.LayerNorm(cfg.width)
        nn.init.normal_(self.token.weight, std=0.02)

    def forward(self, x, y):
        h = self.token(x) + self.place.weight[: x.shape[1]]
        h = self.norm(self.blocks(h))
        return F.cross_entropy(F.linear(h, self.token.weight).flatten(0, 1), y.flatten())


class Trainer:
    def __init__(self, cfg, stream):
        self.cfg, self.stream = cfg, stream
        self.model = CodeModel(cfg)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, betas=(0.9, 0.95), fused=True)
        self.schedule = torch.optim.lr_scheduler.LinearLR(self.optimizer, 0.1, total_iters=10)

    def micro_batches(self):
        start = torch.randint(len(self.stream) - self.cfg.context - 1, (self.cfg.accumulate, self.cfg.micro_batch, 1))
        text = self.stream[start + torch.arange(self.cfg.context + 1)]
        return zip(text[..., :-1], text[..., 1:], strict=True)

    def update(self):
        total = torch.zeros(())
        for x, y in self.micro_batches():
            loss = self.model(x, y) / self.cfg.accumulate
            loss.backward()
            total += loss.detach()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)
        self.schedule.step()
        return total, norm

    def fit(self):
        for number in range(self.cfg.updates):
            loss, norm = self.update()
            if number % 10 == 0:
                print(f"update {number}: loss {loss.item():.4f} norm {norm.item():.3f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    config = TrainConfig()
    Trainer(config, tokens(200_000, config.vocabulary, seed=3)).fit()
