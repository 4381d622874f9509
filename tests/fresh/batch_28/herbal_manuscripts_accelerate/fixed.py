"""Masked language model on transcribed herbals, with Accelerate."""

import argparse

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PAD, MASK, FIRST = 0, 1, 2
IGNORED = -100


def build_corpus(lines, length, vocabulary, seed):
    """Lines whose words follow one another by a fixed random chain, with some noise."""
    generator = torch.Generator().manual_seed(seed)
    successor = torch.randint(FIRST, vocabulary, (vocabulary,), generator=generator)
    text = torch.empty(lines, length, dtype=torch.long)
    text[:, 0] = torch.randint(FIRST, vocabulary, (lines,), generator=generator)
    for position in range(1, length):
        noise = torch.randint(FIRST, vocabulary, (lines,), generator=generator)
        stray = torch.rand(lines, generator=generator) < 0.2
        text[:, position] = torch.where(stray, noise, successor[text[:, position - 1]])
    return text


class MaskingCollator:
    def __init__(self, vocabulary, share=0.15):
        self.vocabulary = vocabulary
        self.share = share

    def __call__(self, examples):
        tokens = torch.stack([example[0] for example in examples])
        chosen = torch.rand(tokens.shape) < self.share
        targets = tokens.masked_fill(~chosen, IGNORED)
        inputs = tokens.masked_fill(chosen & (torch.rand(tokens.shape) < 0.8), MASK)
        return inputs, targets


class SelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class HerbalEncoder(nn.Module):
    def __init__(self, vocabulary, length, width, heads, layers):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width, padding_idx=PAD)
        self.positions = nn.Parameter(0.02 * torch.randn(length, width))
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(layers)])
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.decoder = nn.Linear(width, vocabulary)

    def forward(self, inputs, targets):
        hidden = self.words(inputs) + self.positions[: inputs.shape[1]]
        for layer in self.layers:
            hidden = layer(hidden)
        masked = targets != IGNORED
        hidden, targets = hidden[masked], targets[masked]
        logits = self.decoder(self.transform(hidden))
        return F.cross_entropy(logits, targets, ignore_index=IGNORED)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=3000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1e-3)
    return parser.parse_args()


def main():
    args = parse()
    set_seed(21)
    accelerator = Accelerator(cpu=True)
    corpus = TensorDataset(build_corpus(args.lines, args.length, args.vocabulary, seed=2))
    loader = DataLoader(
        corpus, batch_size=args.batch_size, shuffle=True, drop_last=True, collate_fn=MaskingCollator(args.vocabulary)
    )
    model = HerbalEncoder(args.vocabulary, args.length, args.width, args.heads, args.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * len(loader))
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    model.train()
    for epoch in range(args.epochs):
        for step, (inputs, targets) in enumerate(loader):
            loss = model(inputs, targets)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            if step % 40 == 0:
                accelerator.print(f"epoch {epoch} step {step} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
