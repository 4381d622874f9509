"""A small GPT on characters of made-up verse."""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class GPTConfig:
    block_size: int = 64
    vocab_size: int = 28
    n_layer: int = 4
    n_head: int = 4
    n_embd: int = 96


class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.n_head = config.n_head
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = (part.view(b, t, self.n_head, -1).transpose(1, 2) for part in self.c_attn(x).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(config.n_embd), nn.LayerNorm(config.n_embd)
        self.attn = CausalSelfAttention(config)
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.act = nn.GELU(approximate="tanh")
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(self.act(self.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.blocks = nn.Sequential(*(Block(config) for _ in range(config.n_layer)))
        self.ln_f = nn.LayerNorm(config.n_embd)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.register_buffer("positions", torch.arange(config.block_size))
        self.apply(self.init)

    @staticmethod
    def init(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, idx, targets=None):
        x = self.wte(idx) + self.wpe(self.positions[: idx.size(1)])
        logits = self.lm_head(self.ln_f(self.blocks(x)))
        loss = None if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return logits, loss


def verse(count, seed=0):
    """Letters as numbers: words from a small dictionary, in lines."""
    g = torch.Generator().manual_seed(seed)
    dictionary = [torch.randint(26, (int(n),), generator=g).tolist() for n in torch.randint(2, 8, (200,), generator=g)]
    letters = []
    for number, word in enumerate(torch.randint(200, (count // 5,), generator=g).tolist()):
        letters += [*dictionary[word], 27 if number % 7 == 6 else 26]
    return torch.tensor(letters)


def get_batch(text, config, batch_size):
    start = torch.randint(len(text) - config.block_size - 1, (batch_size, 1))
    window = text[start + torch.arange(config.block_size + 1)]
    return window[:, :-1], window[:, 1:]


def learning_rate(step, warmup=30, steps=240, highest=1e-3, lowest=1e-4):
    if step < warmup:
        return highest * (step + 1) / warmup
    return lowest + 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) * (highest - lowest)


def main():
    torch.manual_seed(1337)
    config = GPTConfig()
    text = verse(100_000)
    model = GPT(config)
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=True)
    for step in range(240):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        _, loss = model(*get_batch(text, config, 12))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 40 == 0:
            print(f"iter {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
