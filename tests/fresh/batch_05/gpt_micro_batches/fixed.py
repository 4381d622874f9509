"""A small GPT that learns to add numbers which are written out as characters."""

import math

import torch
from torch import nn
from torch.nn import functional as F

# data
digits = 5
sums = 6000
# model
n_layer, n_head, n_embd = 3, 4, 96
# batches; an update sees gradient_accumulation_steps * batch_size sums
batch_size = 16
gradient_accumulation_steps = 1
# optimizer
learning_rate, min_lr = 1e-3, 1e-4
weight_decay = 0.1
grad_clip = 1.0
warmup_iters, max_iters = 10, 150
eval_interval = 50
seed = 38

CHARACTERS = "0123456789+=."
LOOKUP = {character: index for index, character in enumerate(CHARACTERS)}
block_size = 3 * digits + 3


def encode_sums(count, generator):
    """Sums of fixed width; the digits of the result stand in reversed order, lowest first."""
    numbers = torch.randint(0, 10**digits, (count, 2), generator=generator).tolist()
    lines = []
    for a, b in numbers:
        result = str(a + b).zfill(digits + 1)[::-1]
        lines.append([LOOKUP[c] for c in f"{a:0{digits}d}+{b:0{digits}d}={result}."])
    return torch.tensor(lines)


class CausalSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=False)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (part.view(B, T, n_head, C // n_head).transpose(1, 2) for part in self.c_attn(x).split(n_embd, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.attn = CausalSelfAttention()
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(len(CHARACTERS), n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.blocks = nn.Sequential(*(Block() for _ in range(n_layer)))
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, len(CHARACTERS), bias=False)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        return self.lm_head(self.ln_f(self.blocks(x)))

    def loss(self, tokens):
        """Only what stands behind the equals sign can be known."""
        answers = slice(2 * digits + 1, None)
        logits = self(tokens[:, :-1])[:, answers]
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:][:, answers].flatten())


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / warmup_iters
    ratio = (it - warmup_iters) / (max_iters - warmup_iters)
    return min_lr + 0.5 * (1 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


def get_batch(data, generator):
    return data[torch.randint(0, len(data), (batch_size,), generator=generator)]


torch.manual_seed(seed)
generator = torch.Generator().manual_seed(seed)
train_data, val_data = encode_sums(sums, generator).split((sums - 500, 500))
model = GPT()
decayed = [p for p in model.parameters() if p.dim() >= 2]
others = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW(
    [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}],
    lr=learning_rate,
    betas=(0.9, 0.95),
    fused=True,
)
for it in range(max_iters):
    for group in optimizer.param_groups:
        group["lr"] = get_lr(it)
    lossf = 0.0
    for _ in range(gradient_accumulation_steps):
        loss = model.loss(get_batch(train_data, generator)) / gradient_accumulation_steps
        loss.backward()
        lossf += loss.detach()
    nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if (it + 1) % eval_interval == 0:
        with torch.no_grad():
            val_loss = model.loss(val_data)
        print(f"iter {it}: train loss {lossf:.4f}, val loss {val_loss:.4f}")
