"""Data-parallel pre-training of a small language model with gradient accumulation (torchrun, gloo)."""

import contextlib
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

batch_size, block_size, gradient_accumulation_steps = 4, 32, 4
max_iters, log_interval, learning_rate = 130, 25, 1e-3
n_embd, n_head, n_layer, vocab_size = 256, 4, 2, 2048


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.attn, self.proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, n_head, -1).transpose(1, 2) for y in self.attn(self.ln1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab_size, n_embd), nn.Embedding(block_size, n_embd)
        self.blocks = nn.Sequential(*(Block() for _ in range(n_layer)))
        self.ln_f, self.head = nn.LayerNorm(n_embd), nn.Linear(n_embd, vocab_size, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        return F.cross_entropy(self.head(self.ln_f(self.blocks(x))).flatten(0, 1), targets.flatten())


def tokens(count):
    g = torch.Generator().manual_seed(0)
    steps = torch.randint(0, 7, (count,), generator=g)
    return (steps.cumsum(0) * 31) % vocab_size


def get_batch(data, generator):
    ix = torch.randint(len(data) - block_size - 1, (batch_size,), generator=generator)
    x = torch.stack([data[i : i + block_size] for i in ix])
    return x, torch.stack([data[i + 1 : i + 1 + block_size] for i in ix])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1337)
    generator = torch.Generator().manual_seed(1337 + rank)
    data, model = tokens(200_000), DDP(GPT())
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95))
    for it in range(1, max_iters + 1):
        for micro_step in range(gradient_accumulation_steps):
            x, y = get_batch(data, generator)
            last = micro_step == gradient_accumulation_steps - 1
            with contextlib.nullcontext() if last else model.no_sync():
                loss = model(x, y) / gradient_accumulation_steps
                loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if it % log_interval == 0 and rank == 0:
            print(f"iter {it}: loss {loss.item() * gradient_accumulation_steps:.4f}")
    if rank == 0:
        with tempfile.TemporaryDirectory() as out_dir:
            torch.save(model.module.state_dict(), os.path.join(out_dir, "ckpt.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
