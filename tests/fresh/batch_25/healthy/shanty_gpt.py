"""A small language model of sea shanties, letter by letter, with causal attention."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

LINES = (
    "what shall we do with a drunken sailor early in the morning ",
    "oh the year was seventeen seventy eight how i wish i was in sherbrooke now ",
    "haul away the bowline the bowline haul ",
    "there once was a ship that put to sea the name of the ship was the billy of tea ",
)


@dataclass
class GPTConfig:
    context: int = 96
    dim: int = 128
    heads: int = 4
    layers: int = 3
    batch_size: int = 16
    steps: int = 150
    lr: float = 1e-3
    seed: int = 61


def compose(lines: int, seed: int) -> tuple[torch.Tensor, str]:
    generator = torch.Generator().manual_seed(seed)
    text = "".join(LINES[i] for i in torch.randint(len(LINES), (lines,), generator=generator).tolist())
    letters = "".join(sorted(set(text)))
    place = {letter: number for number, letter in enumerate(letters)}
    return torch.tensor([place[letter] for letter in text]), letters


class Attention(nn.Module):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.dim, 3 * config.dim, bias=False)
        self.out = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, dim = x.shape
        heads = self.qkv(x).view(batch, length, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, dim))


class Block(nn.Module):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(config.dim), nn.LayerNorm(config.dim)
        self.attention = Attention(config)
        self.feed = nn.Sequential(
            nn.Linear(config.dim, 4 * config.dim), nn.GELU(approximate="tanh"), nn.Linear(4 * config.dim, config.dim)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.feed(self.norm2(x))


class ShantyGPT(nn.Module):
    def __init__(self, config: GPTConfig, letters: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(letters, config.dim)
        self.places = nn.Parameter(0.02 * torch.randn(config.context, config.dim))
        self.blocks = nn.Sequential(*(Block(config) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.dim)
        self.head = nn.Linear(config.dim, letters, bias=False)
        nn.init.normal_(self.letters.weight, std=1 / math.sqrt(config.dim))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.letters(tokens) + self.places)))


def train(config: GPTConfig) -> None:
    torch.manual_seed(config.seed)
    text, letters = compose(3_000, config.seed)
    windows = text.unfold(0, config.context + 1, 1)
    model = ShantyGPT(config, len(letters))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=0.1, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.steps)
    losses = []
    for step in range(config.steps):
        batch = windows[torch.randint(len(windows), (config.batch_size,))]
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
        if (step + 1) % 50 == 0:
            print(f"step {step + 1}: {torch.stack(losses).mean().item():.3f}")
            losses.clear()


if __name__ == "__main__":
    train(GPTConfig())
