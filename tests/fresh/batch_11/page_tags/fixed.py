"""Which element of a web page is the price? A tiny network over a page's elements, with early stopping."""

import argparse
import time

import torch
from torch import nn


def make_pages(pages, tags, features, seed):
    gen = torch.Generator().manual_seed(seed)
    x = torch.randn(pages, tags, features, generator=gen)
    y = torch.zeros(pages, tags)
    y[torch.arange(pages), (x @ torch.randn(features, generator=gen)).argmax(1)] = 1
    return x.flatten(0, 1), y.flatten()[:, None]


def accuracy_per_tag(model, x, y, cutoff=0.5):
    """Share of elements that are called right."""
    with torch.no_grad():
        predictions = model(x).sigmoid()
    return ((predictions >= cutoff) == (y >= cutoff)).float().mean().item()


def learn(model, x, y, validation, settings):
    criterion = nn.BCEWithLogitsLoss(reduction="sum", pos_weight=torch.tensor([settings.pos_weight]))
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    best, waited = float("inf"), 0
    for t in range(settings.iterations):
        for rows in torch.randperm(len(x)).split(settings.batch):
            loss = criterion(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            held_out = criterion(model(validation[0]), validation[1]).item()
        train, valid = accuracy_per_tag(model, x, y), accuracy_per_tag(model, *validation)
        model.train()
        print(f"{t}: validation loss {held_out:.1f}, accuracy {train:.4f} / {valid:.4f}")
        waited = 0 if held_out < best else waited + 1
        best = min(best, held_out)
        if waited > settings.patience:
            break


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=7)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--pos-weight", type=float, default=4.0)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--patience", type=int, default=100)
    settings = parser.parse_args()
    torch.manual_seed(0)
    x, y = make_pages(pages=420, tags=45, features=20, seed=3)
    split = len(x) * 4 // 5
    model = nn.Sequential(
        nn.Linear(20, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1)
    )
    start = time.time()
    learn(model, x[:split], y[:split], (x[split:], y[split:]), settings)
    print(f"{time.time() - start:.1f} s")


if __name__ == "__main__":
    main()
