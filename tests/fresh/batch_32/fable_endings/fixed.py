"""Guesses the last word of a fable's sentence from the words before it: a small causal transformer."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class FableConfig:
    vocab: int = 4000
    length: int = 32
    width: int = 128
    heads: int = 4
    layers: int = 2
    batch_size: int = 24
    steps: int = 100
    lr: float = 6e-4
    seed: int = 17


class FableSentences:
    """A sentence has a moral; the last word follows from the moral and the word that opened it."""

    def __init__(self, config: FableConfig):
        self.config = config
        self.generator = torch.Generator().manual_seed(config.seed)
        self.morals = torch.randint(0, config.vocab, (50, 40), generator=self.generator)

    def draw(self):
        config = self.config
        moral = torch.randint(0, 50, (config.batch_size,), generator=self.generator)
        picks = torch.randint(0, 40, (config.batch_size, config.length), generator=self.generator)
        words = self.morals[moral[:, None], picks]
        stray = torch.rand(words.shape, generator=self.generator) < 0.2
        others = torch.randint(0, config.vocab, words.shape, generator=self.generator)
        words = torch.where(stray, others, words)
        last = self.morals[moral, words[:, 0] % 40]
        return words, last


class SelfAttention(nn.Module):
    def __init__(self, config: FableConfig):
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x):
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, config: FableConfig):
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width)
        self.attention = SelfAttention(config)
        self.norm2 = nn.LayerNorm(config.width)
        self.mlp = nn.Sequential(
            nn.Linear(config.width, 4 * config.width), nn.GELU(), nn.Linear(4 * config.width, config.width)
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class FableModel(nn.Module):
    def __init__(self, config: FableConfig):
        super().__init__()
        self.words = nn.Embedding(config.vocab, config.width)
        self.places = nn.Parameter(torch.zeros(config.length, config.width))
        self.layers = nn.Sequential(*(Layer(config) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocab)
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, words):
        x = self.words(words) + self.places
        x = self.norm(self.layers(x))
        return self.head(x[:, -1])


def parameter_groups(model: nn.Module, decay: float):
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    return [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]


def main(config: FableConfig = FableConfig()) -> None:
    torch.manual_seed(config.seed)
    sentences = FableSentences(config)
    model = FableModel(config)
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.05), lr=config.lr, betas=(0.9, 0.95))
    running = []
    for step in range(1, config.steps + 1):
        words, last = sentences.draw()
        loss = F.cross_entropy(model(words), last)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        running.append(loss.detach())
        if step % 25 == 0:
            print(f"step {step}: loss {torch.stack(running).mean():.3f}")
            running.clear()


if __name__ == "__main__":
    main()
