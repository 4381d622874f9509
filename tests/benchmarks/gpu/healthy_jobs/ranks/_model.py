"""What the jobs of several ranks share: a GPT, and where they run.

BATCH is a prime that divides no other size: so the simulator knows which dimensions a larger batch makes longer.
"""

from __future__ import annotations

import os

import torch
from torch import distributed, nn
from torch.nn import functional

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if CUDA else torch.device("cpu")
VOCABULARY, LENGTH, BATCH, WIDTH, HEADS, LAYERS, STEPS = 4096, 64, 13, 512, 8, 4, 60


def started() -> tuple[int, int]:
    """The process group is there: this rank, and how many there are."""
    distributed.init_process_group("nccl" if CUDA else "gloo")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    return distributed.get_rank(), distributed.get_world_size()


class Block(nn.Module):
    """Attention, then the two layers."""

    def __init__(self, wide: nn.Module | None = None) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.qkv, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide = wide or nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        parts = self.qkv(self.norms[0](x)).split(WIDTH, 2)
        q, k, v = (one.view(batch, length, HEADS, -1).transpose(1, 2) for one in parts)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.wide(self.norms[1](x))


class GPT(nn.Module):
    """Embedding, blocks and head."""

    def __init__(self, *wide: nn.Module) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block(*wide[i : i + 1]) for i in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.register_buffer("order", torch.arange(LENGTH))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.places(self.order))))


class Text:
    """A long text that lies on the device, and its windows."""

    def __init__(self, rank: int) -> None:
        made = torch.Generator().manual_seed(rank)
        self.text = torch.randint(0, VOCABULARY, (BATCH * LENGTH * 8 + 1,), generator=made).to(DEVICE)

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens, and those that follow them."""
        at, count = (step % 8) * BATCH * LENGTH, BATCH * LENGTH
        return self.text[at : at + count].view(BATCH, LENGTH), self.text[at + 1 : at + 1 + count].view(BATCH, LENGTH)


def loss_of(logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Cross entropy of all places."""
    return functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
