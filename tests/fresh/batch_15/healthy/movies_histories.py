"""The next film from what a viewer has seen: bags of embeddings with sparse gradients, logits against sampled films."""

import argparse
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F


def watch(viewers, films, longest, seed=0):
    """Flat histories with offsets, and the film that each viewer sees next; tastes are clusters of films."""
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(5, longest + 1, (viewers,), generator=g)
    taste = torch.randint(0, 50, (viewers,), generator=g)
    owner = torch.repeat_interleave(torch.arange(viewers), lengths)

    def draw(tastes):
        inside = torch.randint(0, films // 50, tastes.shape, generator=g)
        anywhere = torch.randint(0, films, tastes.shape, generator=g)
        loyal = torch.rand(tastes.shape, generator=g) < 0.8
        return torch.where(loyal, tastes * (films // 50) + inside, anywhere)

    return draw(taste[owner]), lengths, draw(taste)


class HistoryBatches:
    """Cuts the histories of a batch of viewers out of the flat array, without a loop over viewers."""

    def __init__(self, seen, lengths, following, batch_size, shuffle):
        self.seen, self.lengths, self.following = seen, lengths, following
        self.starts = lengths.cumsum(0) - lengths
        self.batch_size, self.shuffle = batch_size, shuffle

    def __len__(self):
        return len(self.lengths) // self.batch_size

    def __iter__(self):
        count = len(self.lengths)
        order = torch.randperm(count) if self.shuffle else torch.arange(count)
        for viewers in order[: len(self) * self.batch_size].split(self.batch_size):
            lengths = self.lengths[viewers]
            offsets = lengths.cumsum(0) - lengths
            inner = torch.arange(int(lengths.sum())) - torch.repeat_interleave(offsets, lengths)
            flat = torch.repeat_interleave(self.starts[viewers], lengths) + inner
            yield self.seen[flat], offsets, self.following[viewers]


class FilmModel(nn.Module):
    def __init__(self, films, dim=64, hidden=256):
        super().__init__()
        self.history = nn.EmbeddingBag(films, dim, mode="mean", sparse=True)
        self.films = nn.Embedding(films, dim, sparse=True)
        nn.init.normal_(self.history.weight, std=0.3)
        nn.init.normal_(self.films.weight, std=0.3)
        self.tower = nn.Sequential(
            nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, dim)
        )

    def viewer(self, seen, offsets):
        return self.tower(self.history(seen, offsets))

    def forward(self, seen, offsets, candidates):
        return self.viewer(seen, offsets) @ self.films(candidates).T


@torch.inference_mode()
def hit_rate(model, batches, k=20):
    model.eval()
    hits = []
    for seen, offsets, following in batches:
        best = (model.viewer(seen, offsets) @ model.films.weight.T).topk(k).indices
        hits.append((best == following[:, None]).any(1))
    model.train()
    return torch.cat(hits).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--viewers", type=int, default=120_000)
    parser.add_argument("--films", type=int, default=40_000)
    parser.add_argument("--longest", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--negatives", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-2)
    args = parser.parse_args()
    torch.manual_seed(0)
    train = HistoryBatches(*watch(args.viewers, args.films, args.longest), args.batch_size, shuffle=True)
    test = HistoryBatches(*watch(2048, args.films, args.longest, seed=1), args.batch_size, shuffle=False)
    model = FilmModel(args.films)
    tables = [model.history.weight, model.films.weight]
    optimizers = [
        torch.optim.SparseAdam(tables, lr=args.lr),
        torch.optim.AdamW(model.tower.parameters(), lr=args.lr, weight_decay=1e-3),
    ]
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(args.epochs):
            total = torch.zeros(())
            for seen, offsets, following in train:
                negatives = torch.randint(args.films, (args.negatives,))
                logits = model(seen, offsets, torch.cat([following, negatives]))
                loss = F.cross_entropy(logits, torch.arange(len(following)))
                for optimizer in optimizers:
                    optimizer.zero_grad()
                loss.backward()
                for optimizer in optimizers:
                    optimizer.step()
                total += loss.detach()
            print(f"epoch {epoch} loss {total / len(train):.4f} hits@20 {hit_rate(model, test):.4f}")
            torch.save(model.state_dict(), Path(folder) / "films.pt")


if __name__ == "__main__":
    main()
