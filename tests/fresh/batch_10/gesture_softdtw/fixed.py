"""Hand movements continued from their beginning: a recurrent network under the soft-DTW divergence."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def movements(count, length, seed):
    """Loops in the air drawn at a pace that changes; five coordinates of two joints and the grip."""
    g = torch.Generator().manual_seed(seed)
    pace = (0.15 + 0.1 * torch.rand(count, length, generator=g)).cumsum(1)
    start = 6.28 * torch.rand(count, 1, generator=g)
    size = 0.5 + torch.rand(count, 1, generator=g)
    parts = [size * f(pace * speed + start) for f, speed in ((torch.sin, 1), (torch.cos, 1), (torch.sin, 2))]
    parts += [parts[0] * parts[1], (pace * 0.5 + start).sin()]
    return torch.stack(parts, 2) + 0.03 * torch.randn(count, length, 5, generator=g)


def soft_dtw(cost, gamma):
    """Cost of the best alignments of two series, given the costs of all pairs of times."""
    count, n, m = cost.shape
    skewed = F.pad(cost, (0, n), value=1e6).flatten(1)[:, : n * (n + m - 1)].view(count, n, -1)
    last = cost.new_full((count, n + 1), 1e6)
    second = last.clone()
    second[:, 0] = 0
    for diagonal in skewed.unbind(2):
        before = torch.stack([second[:, :-1], last[:, :-1], last[:, 1:]])
        now = diagonal - gamma * torch.logsumexp(-before / gamma, 0)
        second, last = last, F.pad(now, (1, 0), value=1e6)
    return last[:, -1]


class SoftDTW(nn.Module):
    def __init__(self, gamma=0.1):
        super().__init__()
        self.gamma = gamma

    def forward(self, a, b):
        cost = torch.cdist(a, b).square()
        return soft_dtw(cost, self.gamma).mean() / cost.shape[1]


class Continuation(nn.Module):
    """An encoder reads what was seen; a decoder goes on from its state, one movement after the other."""

    def __init__(self, dim=5, hidden=128):
        super().__init__()
        self.encoder = nn.GRU(dim, hidden, num_layers=2, batch_first=True)
        self.decoder = nn.GRU(hidden, hidden, batch_first=True)
        self.when = nn.Parameter(0.1 * torch.randn(64, hidden))
        self.out = nn.Linear(hidden, dim)

    def forward(self, seen, steps):
        state = self.encoder(seen)[1][-1:]
        queries = self.when[:steps].expand(len(seen), -1, -1) + state.transpose(0, 1)
        return self.out(self.decoder(queries, state)[0])


def evaluate(model, data, seen, criterion):
    model.eval()
    with torch.no_grad():
        guess = model(data[:, :seen], data.shape[1] - seen)
        result = criterion(guess, data[:, seen:]).item(), F.mse_loss(guess, data[:, seen:]).item()
    model.train()
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--movements", type=int, default=1280)
    parser.add_argument("--seen", type=int, default=24)
    parser.add_argument("--ahead", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--gamma", type=float, default=0.1)
    args = parser.parse_args()
    torch.manual_seed(2)
    data = movements(args.movements + 64, args.seen + args.ahead, seed=50)
    model, criterion = Continuation(), SoftDTW(args.gamma)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        for index in torch.randperm(args.movements).split(args.batch_size):
            batch = data[index]
            loss = criterion(model(batch[:, : args.seen], args.ahead), batch[:, args.seen :])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        alignment, error = evaluate(model, data[args.movements :], args.seen, criterion)
        print(f"epoch {epoch}: soft-DTW {alignment:.4f}, squared error {error:.4f}")


if __name__ == "__main__":
    main()
