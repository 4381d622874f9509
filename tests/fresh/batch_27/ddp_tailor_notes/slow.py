"""A language model of tailors' notes on two ranks: torchrun --nproc-per-node 2 slow.py"""

import os
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class NotesConfig:
    vocab: int = 5_000
    block: int = 16
    width: int = 160
    heads: int = 4
    layers: int = 2
    micro_batch: int = 2
    accumulate: int = 4
    updates: int = 90
    lr: float = 6e-4
    log_every: int = 30
    notes: int = 120_000
    seed: int = 64


class NotesStream:
    """Random crops of one long text; each rank draws its own."""

    def __init__(self, cfg, rank):
        source = torch.Generator().manual_seed(cfg.seed)
        ranks = torch.randint(1, cfg.vocab, (cfg.notes,), generator=source).float()
        steps = (ranks.pow(0.7)).long()
        self.text = steps.cumsum(0) % cfg.vocab
        self.cfg = cfg
        self.generator = torch.Generator().manual_seed(cfg.seed + rank)
        self.offsets = torch.arange(cfg.block + 1)

    def next(self):
        starts = torch.randint(len(self.text) - self.cfg.block - 1, (self.cfg.micro_batch, 1), generator=self.generator)
        crop = self.text[starts + self.offsets]
        return crop[:, :-1], crop[:, 1:]


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class NotesModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tokens = nn.Embedding(cfg.vocab, cfg.width)
        self.positions = nn.Parameter(torch.zeros(cfg.block, cfg.width))
        self.layers = nn.Sequential(*[Layer(cfg.width, cfg.heads) for _ in range(cfg.layers)])
        self.norm = nn.LayerNorm(cfg.width)
        self.head = nn.Linear(cfg.width, cfg.vocab, bias=False)
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions
        return self.head(self.norm(self.layers(x)))


def train_update(model, optimizer, stream, cfg):
    total = torch.zeros(())
    for _ in range(cfg.accumulate):
        inputs, targets = stream.next()
        with nullcontext():
            logits = model(inputs)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten()) / cfg.accumulate
            loss.backward()
        total += loss.detach()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return total


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    cfg = NotesConfig()
    torch.manual_seed(cfg.seed)
    model = DDP(NotesModel(cfg))
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, betas=(0.9, 0.95), fused=True)
    stream = NotesStream(cfg, rank)
    for update in range(1, cfg.updates + 1):
        loss = train_update(model, optimizer, stream, cfg)
        if update % cfg.log_every == 0:
            dist.all_reduce(loss)
            if rank == 0:
                print(f"update {update}: loss {loss.item() / dist.get_world_size():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
