"""A small GPT: fused attention and AdamW, TF32, batches made on workers and pinned."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
VOCABULARY, LENGTH, BATCH, WIDTH, HEADS, LAYERS = 8192, 256, 5, 768, 12, 3


class Tokens(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Windows of one long text."""

    def __init__(self, count: int) -> None:
        self.text = torch.randint(0, VOCABULARY, (count * LENGTH + 1,))
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        at = i * LENGTH
        return self.text[at : at + LENGTH], self.text[at + 1 : at + 1 + LENGTH]


class Block(nn.Module):
    """Attention, then the two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.qkv, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        parts = self.qkv(self.norms[0](x)).split(WIDTH, 2)
        q, k, v = (one.view(batch, length, HEADS, -1).transpose(1, 2) for one in parts)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.wide(self.norms[1](x))


class GPT(nn.Module):
    """Embedding, blocks, and the head that shares the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks, self.norm = nn.Sequential(*(Block() for _ in range(LAYERS))), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight
        self.register_buffer("order", torch.arange(LENGTH))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.places(self.order))))


def main() -> None:
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    loader = DataLoader(Tokens(BATCH * 30), BATCH, num_workers=2, pin_memory=True, drop_last=True)
    model = GPT().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    for batch in loader:
        tokens, wanted = (one.to(DEVICE, non_blocking=True) for one in batch)
        loss = functional.cross_entropy(model(tokens).flatten(0, 1), wanted.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


if __name__ == "__main__":
    main()
