"""Fine-grained emotion classification of short messages with a label-aware contrastive loss."""

import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

EMOTIONS = ["joy", "sadness", "anger", "fear", "surprise", "disgust", "trust", "hope", "guilt", "pride", "envy", "calm"]


class Messages(Dataset):
    """Synthetic messages: every emotion prefers a band of the vocabulary. Each item has two views (word dropout)."""

    def __init__(self, count, vocab, length, seed):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(len(EMOTIONS), (count,), generator=generator)
        band = vocab // (len(EMOTIONS) + 1)
        common = torch.randint(1, vocab, (count, length), generator=generator)
        special = self.labels[:, None] * band + torch.randint(1, band, (count, length), generator=generator)
        use = torch.rand(count, length, generator=generator) < 0.35
        self.tokens = torch.where(use, special, common)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        tokens = self.tokens[index]
        drop = torch.rand(len(tokens)) < 0.15
        return tokens, tokens.masked_fill(drop, 0), self.labels[index]


class Encoder(nn.Module):
    def __init__(self, vocab, width, layers, classes):
        super().__init__()
        self.embed = nn.Embedding(vocab, width, padding_idx=0)
        self.position = nn.Parameter(torch.randn(1, 64, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.project = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 64))
        self.classify = nn.Linear(width, classes)

    def forward(self, tokens):
        hidden = self.embed(tokens) + self.position[:, : tokens.size(1)]
        pooled = self.body(hidden).mean(1)
        return F.normalize(self.project(pooled), dim=-1), self.classify(pooled)


class LabelAwareContrast(nn.Module):
    """Supervised contrastive loss in which negatives count as much as the weighting network confuses them."""

    def __init__(self, temperature=0.3):
        super().__init__()
        self.temperature = temperature

    def pair_weights(self, scores, labels):
        count = labels.size(0)
        weights = torch.ones(count, count)
        for i in range(count):
            for j in range(count):
                if labels[i] != labels[j]:
                    weights[i, j] = scores[i, labels[j]]
        return weights

    def forward(self, features, scores, labels):
        similarity = features @ features.T / self.temperature
        itself = torch.eye(len(labels), dtype=torch.bool)
        weights = self.pair_weights(scores.detach(), labels)
        similarity = similarity - similarity.max(1, keepdim=True).values.detach()
        exponent = (similarity.exp() * weights).masked_fill(itself, 0)
        log_prob = similarity - exponent.sum(1, keepdim=True).clamp_min(1e-8).log()
        positive = (labels[:, None] == labels[None]) & ~itself
        return -(log_prob * positive).sum(1).div(positive.sum(1).clamp_min(1)).mean()


class WeightingNet(nn.Module):
    """A light bag-of-words classifier that says which emotions are close to each other."""

    def __init__(self, vocab, classes):
        super().__init__()
        self.bag = nn.EmbeddingBag(vocab, 48, mode="mean", padding_idx=0)
        self.out = nn.Linear(48, classes)

    def forward(self, tokens):
        return self.out(self.bag(tokens))


def train(args):
    data = Messages(args.messages, args.vocab, args.length, args.seed)
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, drop_last=True)
    encoder = Encoder(args.vocab, args.width, args.layers, len(EMOTIONS))
    weighting = WeightingNet(args.vocab, len(EMOTIONS))
    contrast = LabelAwareContrast()
    parameters = list(encoder.parameters()) + list(weighting.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=3e-4, weight_decay=0.01)
    step, running = 0, torch.zeros(())
    while step < args.steps:
        for first, second, labels in loader:
            tokens, labels = torch.cat([first, second]), torch.cat([labels, labels])
            features, logits = encoder(tokens)
            guess = weighting(tokens)
            loss = args.mix * F.cross_entropy(logits, labels) + F.cross_entropy(guess, labels)
            loss = loss + (1 - args.mix) * contrast(features, guess.softmax(-1), labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            running += loss.detach()
            step += 1
            if step % 30 == 0:
                print(f"step {step} loss {running.item() / 30:.3f}")
                running.zero_()
            if step == args.steps:
                break


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=90)
    parser.add_argument("--messages", type=int, default=4000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--vocab", type=int, default=3000)
    parser.add_argument("--length", type=int, default=28)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--mix", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    random.seed(args.seed)
    train(args)


if __name__ == "__main__":
    main()
