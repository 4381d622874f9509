"""Part-of-speech tags from a bidirectional LSTM; sentences of like length share a batch."""

import argparse
import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler


class Sentences(Dataset):
    """Tags follow a chain; words are drawn from the tag's part of the vocabulary, or from anywhere."""

    def __init__(self, count, vocabulary, tags, seed):
        generator = torch.Generator().manual_seed(seed)
        following = torch.randint(tags, (tags, 3), generator=generator)
        lengths = (5 + 40 * torch.rand(count, generator=generator) ** 2).long()
        chains = [torch.randint(tags, (count,), generator=generator)]
        for _ in range(int(lengths.max()) - 1):
            chains.append(following[chains[-1], torch.randint(3, (count,), generator=generator)])
        chains = torch.stack(chains, 1)
        words = 1 + chains + tags * torch.randint((vocabulary - 1) // tags, chains.shape, generator=generator)
        anywhere = torch.randint(1, vocabulary, chains.shape, generator=generator)
        words = torch.where(torch.rand(chains.shape, generator=generator) < 0.2, anywhere, words)
        self.lengths = lengths.tolist()
        self.items = [(w[:n], t[:n]) for w, t, n in zip(words, chains, self.lengths)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class BucketSampler(Sampler):
    """Batches of neighbours in length, in random order."""

    def __init__(self, lengths, batch_size, seed):
        self.lengths, self.batch_size, self.rng = lengths, batch_size, random.Random(seed)

    def __len__(self):
        return (len(self.lengths) + self.batch_size - 1) // self.batch_size

    def __iter__(self):
        order = sorted(range(len(self.lengths)), key=lambda i: (self.lengths[i], self.rng.random()))
        batches = [order[i : i + self.batch_size] for i in range(0, len(order), self.batch_size)]
        self.rng.shuffle(batches)
        yield from batches


def collate(items):
    words, tags = zip(*sorted(items, key=lambda item: -len(item[0])))
    lengths = torch.tensor([len(w) for w in words])
    return pad_sequence(words, batch_first=True), pad_sequence(tags, batch_first=True, padding_value=-100), lengths


class Tagger(nn.Module):
    def __init__(self, vocabulary, tags, embedding=64, hidden=96):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding, padding_idx=0)
        self.lstm = nn.LSTM(embedding, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, tags)

    def forward(self, words, lengths):
        packed = pack_padded_sequence(self.embedding(words), lengths, batch_first=True)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.out(F.dropout(states, 0.2, self.training))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sentences", type=int, default=14400)
    parser.add_argument("--vocabulary", type=int, default=3001)
    parser.add_argument("--tags", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()

    torch.manual_seed(71)
    dataset = Sentences(args.sentences, args.vocabulary, args.tags, seed=71)
    loader = DataLoader(
        dataset, batch_sampler=BucketSampler(dataset.lengths, args.batch_size, seed=71), collate_fn=collate
    )
    model = Tagger(args.vocabulary, args.tags)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
    for epoch in range(args.epochs):
        total = torch.zeros(())
        for words, tags, lengths in loader:
            loss = F.cross_entropy(model(words, lengths).flatten(0, 1), tags.flatten(), ignore_index=-100)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0, foreach=True)
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: loss {total.item() / len(loader):.4f}")


if __name__ == "__main__":
    main()
