"""A small GPT that learns to sort; a trainer with callbacks."""

import tempfile
import time
from collections import defaultdict
from types import SimpleNamespace

import torch
import torch.nn as nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, RandomSampler


class SortDataset(Dataset):
    def __init__(self, length=24, digits=10, count=20_000):
        self.inputs = torch.randint(digits, (count, length), generator=torch.Generator().manual_seed(0))
        self.length = length

    def __len__(self):
        return len(self.inputs)

    def __getitems__(self, indices):
        inp = self.inputs[indices]
        cat = torch.cat([inp, inp.sort(1).values], 1)
        y = cat[:, 1:].clone()
        y[:, : self.length - 1] = -1
        return cat[:, :-1], y


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(c.n_embd), nn.LayerNorm(c.n_embd)
        self.c_attn, self.c_proj = nn.Linear(c.n_embd, 3 * c.n_embd), nn.Linear(c.n_embd, c.n_embd)
        self.mlp = nn.Sequential(nn.Linear(c.n_embd, 4 * c.n_embd), nn.GELU(), nn.Linear(4 * c.n_embd, c.n_embd))
        self.n_head = c.n_head

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.n_head, -1).transpose(1, 2) for y in self.c_attn(self.ln_1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        x = x + self.c_proj(y)
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(c.vocab_size, c.n_embd), nn.Embedding(c.block_size, c.n_embd)
        self.register_buffer("positions", torch.arange(c.block_size))
        self.h = nn.Sequential(*(Block(c) for _ in range(c.n_layer)))
        self.ln_f, self.lm_head = nn.LayerNorm(c.n_embd), nn.Linear(c.n_embd, c.vocab_size, bias=False)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(self.positions[: idx.shape[1]])
        logits = self.lm_head(self.ln_f(self.h(x)))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


class Trainer:
    def __init__(self, config, model, train_dataset):
        self.config, self.model, self.train_dataset = config, model, train_dataset
        self.callbacks = defaultdict(list)
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=0.1, fused=True
        )

    def add_callback(self, event, callback):
        self.callbacks[event].append(callback)

    def run(self):
        loader = DataLoader(
            self.train_dataset,
            self.config.batch_size,
            sampler=RandomSampler(self.train_dataset, replacement=True, num_samples=10**6),
            collate_fn=lambda batch: batch,
        )
        self.iter_num, began = 0, time.time()
        for x, y in loader:
            _, self.loss = self.model(x, y)
            self.model.zero_grad(set_to_none=True)
            self.loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.iter_num, self.iter_dt, began = self.iter_num + 1, time.time() - began, time.time()
            for callback in self.callbacks["on_batch_end"]:
                callback(self)
            if self.iter_num >= self.config.max_iters:
                break


def report(trainer):
    if trainer.iter_num % 40 == 0:
        print(f"iter_dt {trainer.iter_dt * 1000:.2f}ms; iter {trainer.iter_num}: train loss {trainer.loss.item():.5f}")


if __name__ == "__main__":
    torch.manual_seed(3407)
    config = SimpleNamespace(vocab_size=10, block_size=47, n_layer=3, n_head=4, n_embd=128)
    trainer = Trainer(SimpleNamespace(batch_size=16, learning_rate=5e-4, max_iters=160), GPT(config), SortDataset())
    trainer.add_callback("on_batch_end", report)
    trainer.run()
    with tempfile.TemporaryFile() as file:
        torch.save(trainer.model.state_dict(), file)
