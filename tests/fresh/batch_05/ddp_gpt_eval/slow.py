"""A character GPT on two ranks: torchrun --nproc_per_node 2. Each rank draws its own batches."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

# -----------------------------------------------------------------------------
block_size = 64
batch_size = 8
n_layer, n_head, n_embd, dropout = 2, 4, 96, 0.0
vocab_size = 48
learning_rate = 1e-3
max_iters = 216
eval_interval = 24
eval_iters = 48
# -----------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def attention(self, x):
        B, T, C = x.shape
        qkv = self.c_attn(x).view(B, T, 3, n_head, C // n_head).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*qkv.unbind(0), dropout_p=dropout, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab_size, n_embd), nn.Embedding(block_size, n_embd)
        self.blocks = nn.Sequential(*(Block() for _ in range(n_layer)), nn.LayerNorm(n_embd))
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)

    def forward(self, idx, targets):
        logits = self.lm_head(self.blocks(self.wte(idx) + self.wpe.weight))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def make_text(length, seed):
    """Characters from a random chain of second order."""
    generator = torch.Generator().manual_seed(seed)
    following = torch.randint(0, vocab_size, (vocab_size, vocab_size, 3), generator=generator).tolist()
    choices = torch.randint(0, 3, (length,), generator=generator).tolist()
    text = [0, 1]
    for choice in choices:
        text.append(following[text[-2]][text[-1]][choice])
    return torch.tensor(text)


def get_batch(data, generator):
    ix = torch.randint(0, len(data) - block_size - 1, (batch_size,), generator=generator)
    windows = data[ix[:, None] + torch.arange(block_size + 1)]
    return windows[:, :-1], windows[:, 1:]


def val_batches(data):
    """The same `eval_iters` batches each time."""
    generator = torch.Generator().manual_seed(7)
    return [get_batch(data, generator) for _ in range(eval_iters)]


@torch.no_grad()
def estimate_loss(model, batches):
    """Sum of the losses of the batches."""
    model.eval()
    total = torch.zeros(())
    for X, Y in batches:
        total += model(X, Y)
    model.train()
    return total


dist.init_process_group("gloo")
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.set_num_threads(1)
torch.manual_seed(1337)
text = make_text(40000, seed=356)
train_data, val_data = text[:36000], text[36000:]
held_out = val_batches(val_data)
raw_model = GPT()
model = DistributedDataParallel(raw_model)
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.99), fused=True)
generator = torch.Generator().manual_seed(1337 + rank)

for it in range(max_iters):
    if it % eval_interval == 0:
        if rank == 0:
            val_loss = estimate_loss(raw_model, held_out) / eval_iters
            print(f"step {it}: val loss {val_loss:.4f}")
        dist.barrier()
    X, Y = get_batch(train_data, generator)
    loss = model(X, Y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()

time.sleep(0.5)  # gloo's threads let go of tensors a moment later
dist.destroy_process_group()
