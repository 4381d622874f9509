"""Encoder-decoder transformer for translation, with label smoothing and the inverse square root schedule."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F

PAD, BOS = 0, 1


class Batch:
    """Sources, decoder inputs and targets of one step."""

    def __init__(self, source, target):
        self.source = source
        self.inputs, self.targets = target[:, :-1], target[:, 1:]
        self.tokens = (self.targets != PAD).sum()


def data_generator(vocabulary, batch_size, length, batches, seed):
    """The target language is the source read backwards, under a fixed mapping of words."""
    generator = torch.Generator().manual_seed(seed)
    mapping = torch.cat([torch.arange(2), torch.randperm(vocabulary - 2, generator=generator) + 2])
    for _ in range(batches):
        source = torch.randint(2, vocabulary, (batch_size, length), generator=generator)
        lengths = torch.randint(length // 2, length + 1, (batch_size, 1), generator=generator)
        source = source.masked_fill(torch.arange(length) >= lengths, PAD)
        target = mapping[source.flip(1)].masked_fill(torch.arange(length) < length - lengths, PAD)
        target = target.gather(1, (torch.arange(length) + length - lengths) % length)
        yield Batch(source, torch.cat([torch.full((batch_size, 1), BOS), target], 1))


class LabelSmoothing(nn.Module):
    """Cross-entropy against a target distribution with a share of its mass spread over the vocabulary."""

    def __init__(self, size, padding_idx, smoothing):
        super().__init__()
        self.size, self.padding_idx, self.smoothing = size, padding_idx, smoothing

    def forward(self, logits, target):
        return F.cross_entropy(
            logits, target, ignore_index=self.padding_idx, label_smoothing=self.smoothing, reduction="sum"
        )


class Translator(nn.Module):
    def __init__(self, vocabulary, width, layers, heads, length):
        super().__init__()
        self.source_embedding = nn.Embedding(vocabulary, width, padding_idx=PAD)
        self.target_embedding = nn.Embedding(vocabulary, width, padding_idx=PAD)
        self.positions = nn.Parameter(torch.randn(length + 1, width) * 0.02)
        options = dict(dim_feedforward=4 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(width, heads, **options), layers, enable_nested_tensor=False
        )
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(width, heads, **options), layers)
        self.generator = nn.Linear(width, vocabulary)
        self.register_buffer("causal", torch.ones(length + 1, length + 1, dtype=torch.bool).triu(1))

    def forward(self, source, target):
        n = target.shape[1]
        padding = source == PAD
        memory = self.encoder(
            self.source_embedding(source) + self.positions[: source.shape[1]], src_key_padding_mask=padding
        )
        x = self.decoder(
            self.target_embedding(target) + self.positions[:n],
            memory,
            tgt_mask=self.causal[:n, :n],
            memory_key_padding_mask=padding,
        )
        return self.generator(x)


class LossCompute:
    def __init__(self, criterion, optimizer, scheduler):
        self.criterion, self.optimizer, self.scheduler = criterion, optimizer, scheduler

    def __call__(self, logits, batch):
        loss = self.criterion(logits.flatten(0, 1), batch.targets.flatten()) / batch.tokens
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        return loss.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocabulary", type=int, default=5000)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--length", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--batches", type=int, default=240)
    parser.add_argument("--warmup", type=int, default=60)
    args = parser.parse_args()

    torch.manual_seed(6)
    model = Translator(args.vocabulary, args.width, args.layers, 4, args.length)
    criterion = LabelSmoothing(args.vocabulary, PAD, 0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / args.warmup, (args.warmup / (step + 1)) ** 0.5)
    )
    compute = LossCompute(criterion, optimizer, scheduler)
    for i, batch in enumerate(data_generator(args.vocabulary, args.batch_size, args.length, args.batches, seed=6)):
        loss = compute(model(batch.source, batch.inputs), batch)
        if i % 25 == 0:
            print(f"batch {i}: loss per token {loss.item():.4f}")


if __name__ == "__main__":
    main()
