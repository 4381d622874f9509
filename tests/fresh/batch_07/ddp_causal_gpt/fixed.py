"""A GPT for byte strings on two ranks: torchrun --nproc_per_node 2."""

import math
import os
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class GPTConfig:
    block_size: int = 1024
    vocab_size: int = 96
    n_layer: int = 3
    n_head: int = 4
    n_embd: int = 96


class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.n_head = config.n_head
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        mask = torch.tril(torch.ones(config.block_size, config.block_size))
        self.register_buffer("bias", mask.view(1, 1, config.block_size, config.block_size))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (y.view(B, T, self.n_head, -1).transpose(1, 2) for y in self.c_attn(x).chunk(3, dim=-1))
        att = (q @ k.transpose(-2, -1)) / math.sqrt(k.shape[-1])
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        y = F.softmax(att, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(config.n_embd), nn.LayerNorm(config.n_embd)
        self.attn = CausalSelfAttention(config)
        self.mlp = nn.Sequential(
            nn.Linear(config.n_embd, 4 * config.n_embd), nn.GELU(), nn.Linear(4 * config.n_embd, config.n_embd)
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.h = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.apply(self._init_weights)

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe.weight[: idx.shape[1]]
        for block in self.h:
            x = block(x)
        return F.cross_entropy(self.lm_head(self.ln_f(x)).flatten(0, 1), targets.flatten())


def byte_strings(length, vocab_size, seed):
    """Bytes that mostly continue a slow ramp."""
    generator = torch.Generator().manual_seed(seed)
    jumps = torch.where(
        torch.rand(length, generator=generator) < 0.1, torch.randint(vocab_size, (length,), generator=generator), 1
    )
    return jumps.cumsum(0) % vocab_size


class BatchSource:
    def __init__(self, data, seq_len, batch_size, seed):
        self.data, self.seq_len, self.batch_size = data, seq_len, batch_size
        self.generator = torch.Generator().manual_seed(seed)
        self.offsets = torch.arange(seq_len + 1)

    def next(self):
        starts = torch.randint(len(self.data) - self.seq_len - 1, (self.batch_size, 1), generator=self.generator)
        windows = self.data[starts + self.offsets]
        return windows[:, :-1], windows[:, 1:]


def main():
    dist.init_process_group(backend="gloo")
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    torch.manual_seed(1337)
    config = GPTConfig()
    model = DDP(GPT(config), broadcast_buffers=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), fused=True)
    source = BatchSource(byte_strings(60000, config.vocab_size, seed=7), 128, 4, seed=100 + rank)
    running = torch.zeros(())
    for step in range(1, 201):
        loss = model(*source.next())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        running += loss.detach()
        if step % 20 == 0:
            if rank == 0:
                print(f"step {step}: loss {running.item() / 20:.4f}")
            running.zero_()

    time.sleep(0.5)  # gloo's threads let go of tensors a moment later
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
