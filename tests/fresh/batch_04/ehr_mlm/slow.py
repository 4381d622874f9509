"""Pretraining on patients' visits: masked diagnosis codes are predicted from the others, as in BERT."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

PAD, MASK, FIRST_CODE = 0, 1, 2


@dataclass
class Config:
    codes: int = 3000
    length: int = 64
    batch_size: int = 16
    hidden: int = 128
    layers: int = 2
    heads: int = 4
    mask_rate: float = 0.15
    lr: float = 5e-4
    steps: int = 110


class Patients:
    """Histories: a few conditions each, every condition with its own range of codes."""

    def __init__(self, config, count=1600, seed=410):
        generator = torch.Generator().manual_seed(seed)
        centres = torch.randint(FIRST_CODE, config.codes - 40, (count, 4), generator=generator)
        which = torch.randint(0, 4, (count, config.length), generator=generator)
        jitter = torch.randint(0, 40, (count, config.length), generator=generator)
        self.codes = centres.gather(1, which) + jitter
        self.ages = torch.randint(20, 70, (count, 1), generator=generator) + torch.arange(config.length) // 8
        self.config, self.generator = config, generator

    def batches(self):
        while True:
            for rows in torch.randperm(len(self.codes), generator=self.generator).split(self.config.batch_size):
                yield self.mask(self.codes[rows]), self.ages[rows]

    def mask(self, codes):
        chosen = torch.rand(codes.shape, generator=self.generator) < self.config.mask_rate
        return codes.masked_fill(chosen, MASK), codes.masked_fill(~chosen, -100)


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.mlp = nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden))

    def forward(self, x):
        n, length, hidden = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, length, hidden)
        x = x + self.out(mixed)
        return x + self.mlp(self.norm2(x))


class EhrBert(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.code = nn.Embedding(config.codes, config.hidden)
        self.age = nn.Embedding(110, config.hidden)
        self.place = nn.Parameter(0.02 * torch.randn(config.length, config.hidden))
        self.blocks = nn.Sequential(*(Block(config.hidden, config.heads) for _ in range(config.layers)))
        self.transform = nn.Sequential(nn.Linear(config.hidden, config.hidden), nn.GELU(), nn.LayerNorm(config.hidden))
        self.decoder = nn.Linear(config.hidden, config.codes)

    def forward(self, codes, ages, labels):
        x = self.blocks(self.code(codes) + self.age(ages) + self.place)
        logits = self.decoder(self.transform(x))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)


def warmup(step, steps=20):
    return min(1.0, (step + 1) / steps)


def pretrain(config):
    torch.manual_seed(411)
    patients, model = Patients(config), EhrBert(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=0.01, fused=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, warmup)
    running = 0.0
    for step, ((codes, labels), ages) in enumerate(patients.batches(), start=1):
        optimizer.zero_grad()
        loss = model(codes, ages, labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        running += loss.detach()
        if step % 20 == 0:
            print(f"step {step}: loss {running.item() / 20:.4f}")
            running = 0.0
        if step == config.steps:
            break


if __name__ == "__main__":
    pretrain(Config())
