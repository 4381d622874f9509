"""Ratings of books: neural matrix factorisation with embeddings of readers and books, and a small tower on top."""

import argparse
import math

import torch
import torch.nn as nn
from torch.nn.functional import mse_loss


def make_ratings(readers, books, count, seed=0):
    """Ratings from one to five by hidden factors; few books are read by many."""
    g = torch.Generator().manual_seed(seed)
    reader = torch.randint(0, readers, (count,), generator=g)
    book = (books * torch.rand(count, generator=g) ** 3).long().clamp(max=books - 1)
    taste = torch.randn(readers, 4, generator=g)
    style = torch.randn(books, 4, generator=g)
    rating = 3.4 + 0.5 * (taste[reader] * style[book]).sum(1) + 0.3 * torch.randn(count, generator=g)
    return reader, book, rating.clamp(1, 5).round()


class Batches:
    """Shuffled slices of tensors that lie in memory."""

    def __init__(self, *tensors, size, shuffle=False):
        self.tensors, self.size, self.shuffle = tensors, size, shuffle

    def __len__(self):
        return math.ceil(len(self.tensors[0]) / self.size)

    def __iter__(self):
        count = len(self.tensors[0])
        order = torch.randperm(count) if self.shuffle else torch.arange(count)
        for index in order.split(self.size):
            yield tuple(tensor[index] for tensor in self.tensors)


class BookFactors(nn.Module):
    def __init__(self, readers, books, dim=32, hidden=(256, 128), mean=3.5):
        super().__init__()
        self.reader = nn.Embedding(readers, dim, sparse=True)
        self.book = nn.Embedding(books, dim, sparse=True)
        nn.init.normal_(self.reader.weight, std=0.05)
        nn.init.normal_(self.book.weight, std=0.05)
        layers, inside = [], 3 * dim
        for width in hidden:
            layers += [nn.Linear(inside, width), nn.ReLU(), nn.Dropout(0.1)]
            inside = width
        self.tower = nn.Sequential(*layers, nn.Linear(inside, 1))
        self.mean = mean

    def forward(self, reader, book):
        p, q = self.reader(reader), self.book(book)
        return self.mean + self.tower(torch.cat([p, q, p * q], dim=1)).squeeze(1)


def build_optimizers(model, lr):
    tables = [model.reader.weight, model.book.weight]
    return [torch.optim.SparseAdam(tables, lr=lr), torch.optim.Adam(model.tower.parameters(), lr=lr)]


def train_epoch(model, batches, optimizers, epoch, log_every):
    model.train()
    running = torch.zeros(())
    for step, (reader, book, rating) in enumerate(batches, 1):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = mse_loss(model(reader, book), rating)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        running += loss.detach()
        if step % log_every == 0:
            print(f"epoch {epoch} step {step}/{len(batches)} mse {running.item() / log_every:.4f}")
            running.zero_()


@torch.no_grad()
def root_mean_square_error(model, batches):
    model.eval()
    errors = [mse_loss(model(reader, book), rating, reduction="sum") for reader, book, rating in batches]
    return math.sqrt(torch.stack(errors).sum().item() / len(batches.tensors[0]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--readers", type=int, default=60_000)
    parser.add_argument("--books", type=int, default=30_000)
    parser.add_argument("--ratings", type=int, default=280_000)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(1)

    reader, book, rating = make_ratings(args.readers, args.books, args.ratings)
    cut = int(0.9 * args.ratings)
    train = Batches(reader[:cut], book[:cut], rating[:cut], size=args.batch_size, shuffle=True)
    test = Batches(reader[cut:], book[cut:], rating[cut:], size=8 * args.batch_size)

    model = BookFactors(args.readers, args.books, args.dim, mean=rating[:cut].mean().item())
    optimizers = build_optimizers(model, args.lr)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(train)} batches")
    for epoch in range(args.epochs):
        train_epoch(model, train, optimizers, epoch, log_every=50)
        print(f"epoch {epoch} test rmse {root_mean_square_error(model, test):.4f}")


if __name__ == "__main__":
    main()
