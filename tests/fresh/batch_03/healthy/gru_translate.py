"""Sequence to sequence with GRUs and dot attention over whole sequences; batches hold similar lengths."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

PAD, BOS, WORDS = 0, 1, 400


class Translator(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.dim = dim
        self.source, self.target = nn.Embedding(WORDS, dim, PAD), nn.Embedding(WORDS, dim, PAD)
        self.encoder = nn.GRU(dim, dim, batch_first=True)
        self.decoder = nn.GRU(dim, dim, batch_first=True)
        self.mix = nn.Linear(2 * dim, dim)
        self.out = nn.Linear(dim, WORDS)

    def forward(self, source, shifted):
        memory, last = self.encoder(self.source(source))
        states, _ = self.decoder(self.target(shifted), last)
        allowed = (source != PAD)[:, None, :]
        context = F.scaled_dot_product_attention(states, memory, memory, attn_mask=allowed)
        return self.out(torch.tanh(self.mix(torch.cat([states, context], dim=2))))


def sentences(count):
    """The translation shifts each word by seven and swaps the two halves."""
    pairs = []
    for length in torch.randint(10, 22, (count,)).sort().values.tolist():
        source = torch.randint(2, WORDS, (length,))
        target = (source.roll(length // 2) - 2 + 7) % (WORDS - 2) + 2
        pairs.append((source, target))
    return pairs


def to_batches(pairs, size):
    """Padded once; they are the same in each epoch."""
    batches = []
    for start in range(0, len(pairs), size):
        source, target = zip(*pairs[start : start + size])
        target = pad_sequence(target, batch_first=True)
        shifted = F.pad(target[:, :-1], (1, 0), value=BOS)
        batches.append((pad_sequence(source, batch_first=True), shifted, target))
    return batches


def main():
    torch.manual_seed(7)
    batches = to_batches(sentences(1920), 64)
    model = Translator()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, fused=True)
    for epoch in range(9):
        total = 0.0
        for index in torch.randperm(len(batches)).tolist():
            source, shifted, target = batches[index]
            logits = model(source, shifted)
            loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(batches):.4f}")


if __name__ == "__main__":
    main()
