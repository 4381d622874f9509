"""Adapters for a dialect in a frozen language model of characters: bottlenecks after attention and feed-forward."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class TuneConfig:
    vocabulary: int = 64
    width: int = 192
    heads: int = 6
    layers: int = 4
    context: int = 96
    bottleneck: int = 16
    batch_size: int = 12
    steps: int = 150
    log_every: int = 50
    lr: float = 2e-3


class Adapter(nn.Module):
    def __init__(self, width, bottleneck):
        super().__init__()
        self.down = nn.Linear(width, bottleneck)
        self.up = nn.Linear(bottleneck, width)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x):
        return x + self.up(F.gelu(self.down(x)))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.heads
        self.norm1, self.norm2 = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)
        self.mlp = nn.Sequential(
            nn.Linear(config.width, 4 * config.width), nn.GELU(), nn.Linear(4 * config.width, config.width)
        )
        self.adapters = nn.ModuleList(Adapter(config.width, config.bottleneck) for _ in range(2))

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.adapters[0](self.out(heads.transpose(1, 2).flatten(2)))
        return x + self.adapters[1](self.mlp(self.norm2(x)))


class CharacterModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.letters = nn.Embedding(config.vocabulary, config.width)
        self.places = nn.Parameter(0.02 * torch.randn(config.context, config.width))
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)

    def forward(self, letters):
        x = self.letters(letters) + self.places[: letters.size(1)]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))

    def freeze_all_but_adapters(self):
        self.requires_grad_(False)
        for layer in self.layers:
            layer.adapters.requires_grad_(True)
        return [p for p in self.parameters() if p.requires_grad]


def dialect_text(length, vocabulary, seed):
    """Letters that follow each other by a table with a few likely successors."""
    g = torch.Generator().manual_seed(seed)
    likely = torch.randint(vocabulary, (vocabulary, 4), generator=g).tolist()
    picks = torch.randint(4, (length,), generator=g).tolist()
    letters = [0]
    for pick in picks[1:]:
        letters.append(likely[letters[-1]][pick])
    return torch.tensor(letters)


class Windows:
    """Random windows of the text, all taken with one look-up."""

    def __init__(self, text, config):
        self.text, self.config = text, config
        self.offsets = torch.arange(config.context + 1)

    def batch(self):
        starts = torch.randint(len(self.text) - len(self.offsets), (self.config.batch_size, 1))
        rows = self.text[starts + self.offsets]
        return rows[:, :-1], rows[:, 1:]


def tune(model, windows, config):
    trained = model.freeze_all_but_adapters()
    optimizer = torch.optim.AdamW(trained, lr=config.lr, weight_decay=0.0, fused=True)
    total = torch.zeros(())
    for step in range(1, config.steps + 1):
        letters, targets = windows.batch()
        loss = F.cross_entropy(model(letters).flatten(0, 1), targets.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if step % config.log_every == 0:
            print(f"step {step} loss {total.item() / config.log_every:.4f}")
            total.zero_()


def main():
    config = TuneConfig()
    torch.manual_seed(13)
    text = dialect_text(60_000, config.vocabulary, seed=13)
    tune(CharacterModel(config), Windows(text, config), config)


if __name__ == "__main__":
    main()
