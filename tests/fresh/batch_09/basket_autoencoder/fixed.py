"""What else goes into the basket: a variational autoencoder with multinomial likelihood over a shop's articles."""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn


def baskets(customers, articles, seed):
    """Which articles each customer buys, as numbers; tastes come from a few kinds of households."""
    g = torch.Generator().manual_seed(seed)
    household = torch.randint(0, 12, (customers,), generator=g)
    taste = 2.5 * torch.randn(12, articles, generator=g) + torch.randn(articles, generator=g)
    return [
        torch.multinomial(taste[kind].softmax(0), int(torch.randint(15, 40, (1,), generator=g)), generator=g)
        for kind in household
    ]


def to_matrix(bought, articles):
    """Rows of ones and zeros."""
    rows = torch.zeros(len(bought), articles)
    for row, items in zip(rows, bought):
        row[items] = 1
    return rows


class MultVAE(nn.Module):
    def __init__(self, articles, hidden, latent):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Dropout(0.5), nn.Linear(articles, hidden), nn.Tanh(), nn.Linear(hidden, 2 * latent)
        )
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.Tanh(), nn.Linear(hidden, articles))

    def forward(self, x):
        mean, log_variance = self.encoder(F.normalize(x, dim=1)).chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp() if self.training else mean
        return self.decoder(z), mean, log_variance


def elbo(logits, x, mean, log_variance, beta):
    likelihood = (F.log_softmax(logits, dim=1) * x).sum(1)
    divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1)
    return (beta * divergence - likelihood).mean()


class BestSoFar:
    """Keeps the state of the training at its smallest smoothed loss."""

    def __init__(self, model, optimizer, smoothing=0.98):
        self.model, self.optimizer, self.smoothing = model, optimizer, smoothing
        self.smoothed, self.best, self.state = None, float("inf"), None

    def update(self, loss):
        self.smoothed = loss if self.smoothed is None else self.smoothing * self.smoothed + (1 - self.smoothing) * loss

    def keep(self):
        if self.smoothed < self.best:
            self.best = self.smoothed
            self.state = copy.deepcopy({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()})


@torch.no_grad()
def recall(model, seen, hidden, k=20):
    """Share of the articles held back that are among the k with the highest scores."""
    model.eval()
    scores = model(seen)[0].masked_fill(seen > 0, -1e9)
    found = hidden.gather(1, scores.topk(k).indices).sum(1)
    model.train()
    return (found / hidden.sum(1).clamp(max=k)).mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--customers", type=int, default=6000)
    parser.add_argument("--articles", type=int, default=3000)
    parser.add_argument("--hidden", type=int, default=300)
    parser.add_argument("--latent", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=150)
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(0)
    bought = baskets(args.customers + 400, args.articles, seed=11)
    train = to_matrix(bought[400:], args.articles)
    seen = to_matrix([items[5:] for items in bought[:400]], args.articles)
    hidden = to_matrix([items[:5] for items in bought[:400]], args.articles)
    model = MultVAE(args.articles, args.hidden, args.latent)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    best, steps = BestSoFar(model, optimizer), 0
    for epoch in range(args.epochs):
        for index in torch.randperm(len(train)).split(args.batch_size):
            x = train[index]
            logits, mean, log_variance = model(x)
            loss = elbo(logits, x, mean, log_variance, beta=min(0.2, steps / 500))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            best.update(loss.item())
            steps += 1
        best.keep()
        print(f"epoch {epoch}: loss {best.smoothed:.2f} recall@20 {recall(model, seen, hidden):.3f}")
    model.load_state_dict(best.state["model"])
    print(f"best: loss {best.best:.2f} recall@20 {recall(model, seen, hidden):.3f}")


if __name__ == "__main__":
    main()
