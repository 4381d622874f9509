"""A small GPT that carves epitaphs, letter by letter."""

import random
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class GPTConfig:
    block: int = 96
    width: int = 128
    heads: int = 4
    layers: int = 4
    dropout: float = 0.0


@dataclass
class TrainConfig:
    batch: int = 16
    steps: int = 90
    warmup: int = 15
    lr: float = 2e-3
    log_every: int = 30
    seed: int = 1899


NAMES = "Agnes Barnaby Clement Dorothea Edmund Felicity Gideon Harriet Isaac Jemima".split()
TRADES = "weaver miller mason sexton ferryman clockmaker apothecary bellringer".split()
DEEDS = "rests here from all labour|kept the bells in time|never owed a penny|was loved beyond measure".split("|")


def carve(lines: int, seed: int) -> str:
    rng = random.Random(seed)
    text = []
    for _ in range(lines):
        born = rng.randint(1700, 1840)
        name, trade, deed = rng.choice(NAMES), rng.choice(TRADES), rng.choice(DEEDS)
        text.append(f"{name}, {trade}, {born} to {born + rng.randint(30, 90)}, {deed}.")
    return "\n".join(text)


class Block(nn.Module):
    def __init__(self, config: GPTConfig):
        super().__init__()
        self.heads, self.dropout = config.heads, config.dropout
        self.norm1 = nn.LayerNorm(config.width)
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.project = nn.Linear(config.width, config.width, bias=False)
        self.norm2 = nn.LayerNorm(config.width)
        self.mlp = nn.Sequential(
            nn.Linear(config.width, 4 * config.width), nn.GELU(), nn.Linear(4 * config.width, config.width)
        )

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return self.project(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attend(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, letters: int, config: GPTConfig):
        super().__init__()
        self.config = config
        self.letters = nn.Embedding(letters, config.width)
        self.places = nn.Embedding(config.block, config.width)
        self.blocks = nn.Sequential(*(Block(config) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, letters, bias=False)
        self.head.weight = self.letters.weight
        for table in (self.letters, self.places):
            nn.init.normal_(table.weight, std=0.02)
        self.register_buffer("steps", torch.arange(config.block), persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.letters(ids) + self.places(self.steps[: ids.size(1)])
        return self.head(self.norm(self.blocks(x)))


class Corpus:
    def __init__(self, text: str, block: int):
        self.alphabet = sorted(set(text))
        number = {letter: i for i, letter in enumerate(self.alphabet)}
        self.windows = torch.tensor([number[letter] for letter in text]).unfold(0, block + 1, 1)

    def batch(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        rows = self.windows[torch.randint(len(self.windows), (size,))]
        return rows[:, :-1], rows[:, 1:]


def parameter_groups(model: nn.Module, decay: float) -> list[dict]:
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    return [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]


def main(shape: GPTConfig, run: TrainConfig) -> None:
    torch.manual_seed(run.seed)
    corpus = Corpus(carve(1500, run.seed), shape.block)
    model = GPT(len(corpus.alphabet), shape)
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.1), lr=run.lr, betas=(0.9, 0.95), fused=True)
    ramp = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=run.warmup)
    fall = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, run.steps - run.warmup, eta_min=run.lr / 10)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [ramp, fall], [run.warmup])
    running = torch.zeros(())
    for step in range(1, run.steps + 1):
        ids, following = corpus.batch(run.batch)
        loss = F.cross_entropy(model(ids).flatten(0, 1), following.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        running += loss.detach()
        if step % run.log_every == 0:
            print(f"step {step}: loss {running.item() / run.log_every:.3f}")
            running.zero_()


if __name__ == "__main__":
    main(GPTConfig(), TrainConfig())
