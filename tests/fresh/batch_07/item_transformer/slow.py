"""Next-item recommendation with a causal transformer over each user's history."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Args(argparse.Namespace):
    users, items = 2000, 1500
    maxlen, hidden, blocks, heads = 160, 48, 2, 2
    batch_size, steps = 16, 320
    dropout, lr = 0.2, 1e-3


def make_histories(args, seed):
    """Users walk through a handful of tastes; items of a taste lie close together."""
    rng = np.random.default_rng(seed)
    histories = []
    for _ in range(args.users):
        tastes = rng.integers(0, args.items, 3)
        length = rng.integers(args.maxlen // 2, args.maxlen + 20)
        items = (tastes[rng.integers(0, 3, length)] + rng.integers(0, 30, length)) % args.items + 1
        histories.append(items)
    return histories


class WarpSampler:
    """Batches of (sequence, next items, negatives), padded on the left."""

    def __init__(self, histories, args, seed):
        self.args, self.rng = args, np.random.default_rng(seed)
        self.sequences = np.zeros((len(histories), args.maxlen + 1), dtype=np.int64)
        for row, items in zip(self.sequences, histories):
            tail = items[-(args.maxlen + 1) :]
            row[-len(tail) :] = tail

    def next_batch(self):
        rows = self.sequences[self.rng.integers(0, len(self.sequences), self.args.batch_size)]
        negatives = self.rng.integers(1, self.args.items + 1, (len(rows), self.args.maxlen))
        return (torch.from_numpy(a) for a in (rows[:, :-1].copy(), rows[:, 1:].copy(), negatives))


class PointWiseFeedForward(nn.Module):
    def __init__(self, hidden, dropout):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(hidden, hidden), nn.Dropout(dropout), nn.ReLU(), nn.Linear(hidden, hidden), nn.Dropout(dropout)
        )

    def forward(self, x):
        return x + self.layers(x)


class SelfAttentiveRecommender(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.item_emb = nn.Embedding(args.items + 1, args.hidden, padding_idx=0)
        self.pos_emb = nn.Embedding(args.maxlen, args.hidden)
        self.dropout = nn.Dropout(args.dropout)
        self.attention_norms, self.attentions = nn.ModuleList(), nn.ModuleList()
        self.forward_norms, self.forwards = nn.ModuleList(), nn.ModuleList()
        for _ in range(args.blocks):
            self.attention_norms.append(nn.LayerNorm(args.hidden))
            self.attentions.append(nn.MultiheadAttention(args.hidden, args.heads, batch_first=True))
            self.forward_norms.append(nn.LayerNorm(args.hidden))
            self.forwards.append(PointWiseFeedForward(args.hidden, args.dropout))
        self.last_norm = nn.LayerNorm(args.hidden)
        self.register_buffer("mask", torch.ones(args.maxlen, args.maxlen, dtype=torch.bool).triu(1))

    def log2feats(self, sequences):
        x = self.item_emb(sequences) * self.item_emb.embedding_dim**0.5
        x = self.dropout(x + self.pos_emb.weight)
        for norm1, attention, norm2, forward in zip(
            self.attention_norms, self.attentions, self.forward_norms, self.forwards
        ):
            queries = norm1(x)
            out, _ = attention(queries, x, x, attn_mask=self.mask)
            x = forward(norm2(queries + out))
        return self.last_norm(x)

    def forward(self, sequences, positives, negatives):
        features = self.log2feats(sequences)
        return (features * self.item_emb(positives)).sum(-1), (features * self.item_emb(negatives)).sum(-1)


def main():
    args = Args()
    torch.manual_seed(2)
    sampler = WarpSampler(make_histories(args, seed=2), args, seed=3)
    model = SelfAttentiveRecommender(args)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_normal_(parameter)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, betas=(0.9, 0.98))
    for step in range(1, args.steps + 1):
        sequences, positives, negatives = sampler.next_batch()
        positive_logits, negative_logits = model(sequences, positives, negatives)
        weight = (positives != 0).float()
        loss = F.softplus(-positive_logits) + F.softplus(negative_logits)
        loss = (loss * weight).sum() / weight.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
