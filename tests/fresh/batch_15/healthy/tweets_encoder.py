"""Tone of short messages: tokens once encoded, batches of like lengths, pre-norm Transformer with fused attention."""

import argparse
import math
import random
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

TONES = ("glad", "angry", "neutral")
PAD = 0


def write_messages(count, vocabulary, seed):
    """Token ids of 5 to 70 words; a few words give the tone away."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, len(TONES), (count,), generator=g)
    lengths = (5 + 14 * torch.empty(count).exponential_(generator=g)).long().clamp(max=70)
    messages = []
    for label, length in zip(labels.tolist(), lengths.tolist()):
        words = torch.randint(1 + 60 * len(TONES), vocabulary, (length,), generator=g)
        telling = torch.rand(length, generator=g) < 0.15
        words[telling] = 1 + 60 * label + torch.randint(0, 60, (int(telling.sum()),), generator=g)
        messages.append(words)
    return messages, labels.tolist()


class Messages(Dataset):
    def __init__(self, messages, labels):
        self.messages, self.labels = messages, labels

    def __len__(self):
        return len(self.messages)

    def __getitem__(self, index):
        return self.messages[index], self.labels[index]


class LikeLengths(Sampler):
    """Batches from pools that are sorted by length; pools and batches come in random order."""

    def __init__(self, lengths, batch_size, pool=20, shuffle=True):
        self.lengths, self.batch_size, self.pool, self.shuffle = lengths, batch_size, pool, shuffle

    def __len__(self):
        return math.ceil(len(self.lengths) / self.batch_size)

    def __iter__(self):
        order = list(range(len(self.lengths)))
        if self.shuffle:
            random.shuffle(order)
        size, batches = self.batch_size * self.pool, []
        for start in range(0, len(order), size):
            part = sorted(order[start : start + size], key=self.lengths.__getitem__)
            batches += [part[i : i + self.batch_size] for i in range(0, len(part), self.batch_size)]
        if self.shuffle:
            random.shuffle(batches)
        yield from batches


def collate(samples):
    messages, labels = zip(*samples)
    return pad_sequence(messages, batch_first=True, padding_value=PAD), torch.tensor(labels)


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x, mask):
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class ToneEncoder(nn.Module):
    def __init__(self, vocabulary, dim=96, heads=4, layers=2, longest=72):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, dim, padding_idx=PAD)
        self.positions = nn.Embedding(longest, dim)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, len(TONES))

    def forward(self, tokens):
        real = tokens != PAD
        x = self.tokens(tokens) + self.positions.weight[: tokens.size(1)]
        mask = real[:, None, None]
        for layer in self.layers:
            x = layer(x, mask)
        weight = real.unsqueeze(2) / real.sum(1)[:, None, None]
        return self.head((self.norm(x) * weight).sum(1))


@torch.inference_mode()
def evaluate(model, loader):
    model.eval()
    right = torch.zeros((), dtype=torch.long)
    for tokens, labels in loader:
        right += (model(tokens).argmax(1) == labels).sum()
    model.train()
    return right.item() / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=3000)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    loaders = []
    for count, seed in ((7000, 1), (700, 2)):
        data = Messages(*write_messages(count, args.vocabulary, seed))
        sampler = LikeLengths([len(message) for message in data.messages], args.batch_size, shuffle=seed == 1)
        loaders.append(DataLoader(data, batch_sampler=sampler, collate_fn=collate))
    train, valid = loaders
    model = ToneEncoder(args.vocabulary)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * len(train))
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(args.epochs):
            total = torch.zeros(())
            for tokens, labels in train:
                loss = F.cross_entropy(model(tokens), labels)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                total += loss.detach()
            print(f"epoch {epoch} loss {total / len(train):.4f} accuracy {evaluate(model, valid):.3f}")
            torch.save(model.state_dict(), Path(folder) / "tone.pt")


if __name__ == "__main__":
    main()
