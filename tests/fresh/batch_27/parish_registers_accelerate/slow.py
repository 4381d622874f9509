"""Relations between persons in parish registers: spans are pooled and paired, trained with accelerate."""

import argparse
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

VOCABULARY = 3_000
RELATIONS = 6


@dataclass
class Entry:
    tokens: torch.Tensor
    spans: torch.Tensor
    relations: torch.Tensor


def make_entry(generator, persons=8):
    length = int(torch.randint(60, 97, (1,), generator=generator))
    tokens = torch.randint(1, VOCABULARY, (length,), generator=generator)
    starts = torch.randint(0, length - 5, (persons,), generator=generator)
    ends = starts + torch.randint(1, 5, (persons,), generator=generator)
    first = tokens[starts]
    relations = (first.unsqueeze(0) + 2 * first.unsqueeze(1)) % RELATIONS
    return Entry(tokens, torch.stack([starts, ends], dim=1), relations)


class Register(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.entries = [make_entry(generator) for _ in range(count)]

    def __len__(self):
        return len(self.entries)

    def __getitem__(self, index):
        return self.entries[index]


def collate(entries):
    tokens = pad_sequence([entry.tokens for entry in entries], batch_first=True)
    spans = torch.stack([entry.spans for entry in entries])
    relations = torch.stack([entry.relations for entry in entries])
    return tokens, spans, relations


class SpanPooling(nn.Module):
    """The mean of the states of each person's tokens."""

    def forward(self, states, spans):
        pooled = []
        for row, row_spans in zip(states, spans.tolist(), strict=True):
            pooled.append(torch.stack([row[start:end].mean(dim=0) for start, end in row_spans]))
        return torch.stack(pooled)


class PairScorer(nn.Module):
    def __init__(self, width, relations):
        super().__init__()
        self.head = nn.Linear(width, width)
        self.tail = nn.Linear(width, width)
        self.out = nn.Linear(width, relations)

    def forward(self, persons):
        pairs = self.head(persons).unsqueeze(2) + self.tail(persons).unsqueeze(1)
        return self.out(F.gelu(pairs))


class RelationModel(nn.Module):
    def __init__(self, width=128, layers=2, heads=4, longest=96):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width, padding_idx=0)
        self.positions = nn.Embedding(longest, width)
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.pool = SpanPooling()
        self.score = PairScorer(width, RELATIONS)

    def forward(self, tokens, spans):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        states = self.words(tokens) + self.positions(places)
        states = self.encoder(states, src_key_padding_mask=tokens == 0)
        return self.score(self.pool(states, spans))


def train(args):
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(args.seed)
    loader = DataLoader(
        Register(args.entries, args.seed),
        batch_size=args.batch_size,
        shuffle=True,
        collate_fn=collate,
        drop_last=True,
    )
    model = RelationModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(args.epochs):
        total = torch.zeros((), device=accelerator.device)
        for tokens, spans, relations in loader:
            logits = model(tokens, spans)
            loss = F.cross_entropy(logits.flatten(0, 2), relations.flatten())
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            total += loss.detach()
        accelerator.print(f"epoch {epoch} loss {total.item() / len(loader):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--entries", type=int, default=800)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=23)
    train(parser.parse_args())
