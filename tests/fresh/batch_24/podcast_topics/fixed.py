"""Tag podcast transcripts with their topics: embeddings, convolutions and pooling over the words."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence


class Transcripts:
    """Snippets of transcripts of different lengths; each topic prefers words of its own."""

    def __init__(self, count: int, vocabulary: int, topics: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.lengths = torch.randint(40, 121, (count,), generator=generator)
        self.topics = (torch.rand(count, topics, generator=generator) < 0.15).float()
        preferred = torch.rand(topics, vocabulary, generator=generator).pow(12)
        weights = self.topics @ preferred + 0.02
        self.words = [
            torch.multinomial(weights[i], int(length), replacement=True, generator=generator) + 1
            for i, length in enumerate(self.lengths)
        ]

    def __len__(self) -> int:
        return len(self.words)

    def batches(self, size: int, generator: torch.Generator):
        order = torch.randperm(len(self), generator=generator)
        for rows in order[: len(self) // size * size].split(size):
            words = pad_sequence([self.words[row] for row in rows.tolist()], batch_first=True)
            yield words, self.lengths[rows], self.topics[rows]


class ConvLayer(nn.Module):
    def __init__(self, dim: int, kernel: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(dim, dim, kernel, padding=kernel // 2)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + F.gelu(self.conv(x.transpose(1, 2)).transpose(1, 2)))


class TopicTagger(nn.Module):
    """Convolutions over embedded words, the mean over the words of each snippet, one logit per topic."""

    def __init__(self, vocabulary: int, topics: int, dim: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary + 1, dim, padding_idx=0)
        self.layers = nn.ModuleList(ConvLayer(dim, 5) for _ in range(layers))
        self.dropout = nn.Dropout(0.2)
        self.out = nn.Linear(dim, topics)

    def encode(self, words: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(words)
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden

    def pool(self, hidden: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        inside = torch.arange(hidden.shape[1]) < lengths[:, None]
        return (hidden * inside[:, :, None]).sum(dim=1) / lengths[:, None]

    def forward(self, words: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return self.out(self.dropout(self.pool(self.encode(words), lengths)))


class MultiLabelF1:
    """Counts over the batches of an epoch."""

    def __init__(self) -> None:
        self.hits = self.predicted = self.actual = 0.0

    def update(self, logits: torch.Tensor, topics: torch.Tensor) -> None:
        chosen = (logits > 0).float()
        self.hits += (chosen * topics).sum()
        self.predicted += chosen.sum()
        self.actual += topics.sum()

    def compute(self) -> float:
        return float(2 * self.hits / (self.predicted + self.actual))


@torch.inference_mode()
def evaluate(model: nn.Module, data: Transcripts, size: int) -> float:
    model.eval()
    score = MultiLabelF1()
    for words, lengths, topics in data.batches(size, torch.Generator().manual_seed(0)):
        score.update(model(words, lengths), topics)
    model.train()
    return score.compute()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocabulary", type=int, default=4000)
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--dim", type=int, default=96)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=13)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    train = Transcripts(3360, args.vocabulary, args.topics, args.seed)
    held_out = Transcripts(320, args.vocabulary, args.topics, args.seed + 1)
    model = TopicTagger(args.vocabulary, args.topics, args.dim, args.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    for epoch in range(args.epochs):
        losses = []
        for words, lengths, topics in train.batches(args.batch_size, generator):
            loss = F.binary_cross_entropy_with_logits(model(words, lengths), topics)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        score = evaluate(model, held_out, args.batch_size)
        print(f"epoch {epoch}: loss {torch.stack(losses).mean().item():.4f}, f1 {score:.4f}")


if __name__ == "__main__":
    main()
