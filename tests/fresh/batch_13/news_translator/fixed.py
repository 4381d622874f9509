"""A Transformer for translation, written from its parts."""

import math

import torch
from torch import nn
from torch.nn import functional as F

PAD, BOS = 0, 1


class LabelSmoothing(nn.Module):
    def __init__(self, size, smoothing=0.1):
        super().__init__()
        self.size, self.smoothing = size, smoothing

    def forward(self, logits, target):
        return F.cross_entropy(logits, target, ignore_index=PAD, label_smoothing=self.smoothing)


class PositionalEncoding(nn.Module):
    def __init__(self, width, longest=64):
        super().__init__()
        place = torch.arange(longest)[:, None] * torch.exp(-math.log(1e4) * torch.arange(0, width, 2) / width)
        self.register_buffer("table", torch.stack([place.sin(), place.cos()], -1).flatten(1))

    def forward(self, x):
        return x + self.table[: x.shape[1]]


class Translator(nn.Module):
    def __init__(self, source_vocab, target_vocab, width=64, heads=4, layers=1):
        super().__init__()
        self.width = width
        self.source = nn.Embedding(source_vocab, width, padding_idx=PAD)
        self.target = nn.Embedding(target_vocab, width, padding_idx=PAD)
        self.position = PositionalEncoding(width)
        self.transformer = nn.Transformer(width, heads, layers, layers, 2 * width, 0.1, batch_first=True)
        self.generator = nn.Linear(width, target_vocab)

    def forward(self, source, target):
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1]) < 0
        memory = self.position(self.source(source) * math.sqrt(self.width))
        queries = self.position(self.target(target) * math.sqrt(self.width))
        padding = dict(src_key_padding_mask=source == PAD, tgt_key_padding_mask=target == PAD)
        h = self.transformer(memory, queries, tgt_mask=causal, **padding, memory_key_padding_mask=source == PAD)
        return self.generator(h)


def make_batches(count, batch_size, vocab, seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        length = int(torch.randint(12, 24, (1,), generator=generator))
        source = torch.randint(2, vocab, (batch_size, length), generator=generator)
        keep = torch.randint(length - 4, length + 1, (batch_size, 1), generator=generator)
        source = source.masked_fill(torch.arange(length) >= keep, PAD)
        answer = torch.where(source == PAD, PAD, (source * 7 + 3) % (vocab - 2) + 2)
        yield source, torch.cat([torch.full((batch_size, 1), BOS), answer], 1)


def rate(step, width=64, warmup=60):
    step = max(step, 1)
    return width**-0.5 * min(step**-0.5, step * warmup**-1.5)


def main():
    torch.manual_seed(0)
    vocab = 9000
    model = Translator(vocab, vocab)
    criterion = LabelSmoothing(vocab)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    for step, (source, target) in enumerate(make_batches(150, 24, vocab, seed=0)):
        logits = model(source, target[:, :-1])
        loss = criterion(logits.flatten(0, 1), target[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
