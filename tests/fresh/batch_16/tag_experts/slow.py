"""Semantic parsing with a decoder whose last layer is a mixture: the kind of a token decides which expert takes it."""

import dataclasses

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclasses.dataclass
class Config:
    words: int = 300
    tokens: int = 160
    dim: int = 64
    heads: int = 4
    experts: int = 16
    source_length: int = 24
    target_length: int = 32
    batch: int = 16
    steps: int = 150


class Commands:
    """Logical forms follow from the words by a fixed table and the token before."""

    def __init__(self, config, seed=0):
        self.config, self.generator = config, torch.Generator().manual_seed(seed)
        self.table = torch.randint(1, config.tokens, (config.words, 4), generator=self.generator)

    def batch(self):
        c = self.config
        source = torch.randint(0, c.words, (c.batch, c.source_length), generator=self.generator)
        place = torch.arange(c.target_length) * c.source_length // c.target_length
        target = self.table[source[:, place], torch.arange(c.target_length) % 4]
        return source, target


class ExpertLayer(nn.Module):
    def __init__(self, dim, count):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)) for _ in range(count)
        )

    def forward(self, x, gate):
        h = self.norm(x)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            chosen = gate == i
            out = out + expert(h) * chosen.unsqueeze(-1)
        return x + out


class Block(nn.Module):
    def __init__(self, dim, heads, cross):
        super().__init__()
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.cross = nn.MultiheadAttention(dim, heads, batch_first=True) if cross else None
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3))
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, memory=None, mask=None):
        h = self.norms[0](x)
        x = x + self.attention(h, h, h, attn_mask=mask, need_weights=False)[0]
        if self.cross is not None:
            x = x + self.cross(self.norms[1](x), memory, memory, need_weights=False)[0]
        return x + self.mlp(self.norms[2](x))


class Parser(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.words = nn.Embedding(config.words, config.dim)
        self.tokens = nn.Embedding(config.tokens, config.dim)
        self.places = nn.Parameter(0.02 * torch.randn(2, 1, config.target_length, config.dim))
        self.encoder = Block(config.dim, config.heads, cross=False)
        self.decoder = nn.ModuleList(Block(config.dim, config.heads, cross=True) for _ in range(2))
        self.mixture = ExpertLayer(config.dim, config.experts)
        self.head = nn.Linear(config.dim, config.tokens)
        self.experts = config.experts
        causal = torch.full((config.target_length, config.target_length), -torch.inf).triu(1)
        self.register_buffer("causal", causal)

    def forward(self, source, target):
        memory = self.encoder(self.words(source) + self.places[0, :, : source.shape[1]])
        shifted = F.pad(target[:, :-1], (1, 0))
        x = self.tokens(shifted) + self.places[1]
        for block in self.decoder:
            x = block(x, memory, self.causal)
        return self.head(self.mixture(x, shifted % self.experts))


def main():
    torch.manual_seed(0)
    config = Config()
    data, model = Commands(config), Parser(config)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 30))
    for step in range(config.steps):
        source, target = data.batch()
        logits = model(source, target)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 25 == 24:
            right = (logits.argmax(2) == target).float().mean().item()
            print(f"step {step + 1} loss {loss.item():.4f} token accuracy {right:.3f}")


if __name__ == "__main__":
    main()
