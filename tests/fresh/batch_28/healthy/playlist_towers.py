"""Two towers for playlists and tracks, trained with in-batch negatives and logQ correction."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def make_playlists(count, tracks, length, seed=0):
    """Tracks of a playlist come from one of a few genres; popular tracks are drawn more often."""
    generator = torch.Generator().manual_seed(seed)
    genres = 32
    genre_of = torch.randint(0, genres, (tracks,), generator=generator)
    popularity = torch.rand(tracks, generator=generator) ** 3 + 1e-3
    weights = popularity * (genre_of == torch.arange(genres)[:, None]) + 1e-6
    chosen = torch.randint(0, genres, (count,), generator=generator)
    playlists = torch.empty(count, length + 1, dtype=torch.long)
    for genre in range(genres):
        rows = (chosen == genre).nonzero().squeeze(1)
        drawn = torch.multinomial(weights[genre], len(rows) * (length + 1), replacement=True, generator=generator)
        playlists[rows] = drawn.view(len(rows), length + 1)
    return playlists, torch.log(popularity / popularity.sum())


class PlaylistTower(nn.Module):
    def __init__(self, tracks, width):
        super().__init__()
        self.bag = nn.EmbeddingBag(tracks, width, mode="mean")
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, items):
        return F.normalize(self.mlp(self.bag(items)), dim=-1)


class TrackTower(nn.Module):
    def __init__(self, tracks, width):
        super().__init__()
        self.table = nn.Embedding(tracks, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, items):
        return F.normalize(self.mlp(self.table(items)), dim=-1)


class Retrieval(nn.Module):
    def __init__(self, tracks, width, log_q):
        super().__init__()
        self.playlist_tower = PlaylistTower(tracks, width)
        self.track_tower = TrackTower(tracks, width)
        self.scale = nn.Parameter(torch.tensor(2.5))
        self.register_buffer("log_q", log_q)

    def forward(self, known, following):
        scores = self.playlist_tower(known) @ self.track_tower(following).T
        logits = self.scale.exp() * scores - self.log_q[following]
        same = (following[:, None] == following[None]) & ~torch.eye(len(following), dtype=torch.bool)
        return F.cross_entropy(logits.masked_fill(same, float("-inf")), torch.arange(len(following)))


def batches(playlists, size):
    order = torch.randperm(len(playlists))
    for chosen in order[: len(order) // size * size].split(size):
        batch = playlists[chosen]
        yield batch[:, :-1], batch[:, -1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--playlists", type=int, default=80_000)
    parser.add_argument("--tracks", type=int, default=4_000)
    parser.add_argument("--length", type=int, default=20)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    playlists, log_q = make_playlists(args.playlists, args.tracks, args.length)
    model = Retrieval(args.tracks, args.width, log_q)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
    for epoch in range(args.epochs):
        total, steps = torch.zeros(()), 0
        for known, following in batches(playlists, args.batch_size):
            optimizer.zero_grad(set_to_none=True)
            loss = model(known, following)
            loss.backward()
            optimizer.step()
            total += loss.detach()
            steps += 1
        print(f"epoch {epoch}: loss {total.item() / steps:.4f}")


if __name__ == "__main__":
    main()
