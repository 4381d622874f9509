"""A Cox model with a network for its risk: how long patients stay on dialysis until a transplant."""

import argparse

import torch
import torch.nn as nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


class Patients(Dataset):
    """Laboratory values, categories, times in months and whether the transplant was seen."""

    def __init__(self, count, features, categories, seed):
        generator = torch.Generator().manual_seed(seed)
        self.values = torch.randn(count, features, generator=generator)
        self.codes = torch.randint(0, 12, (count, categories), generator=generator)
        risk = 0.8 * torch.tanh(self.values[:, 0] * self.values[:, 1]) + 0.1 * (self.codes[:, 0] - 6)
        waiting = torch.empty(count).exponential_(generator=generator) * torch.exp(-risk) * 24
        censoring = torch.empty(count).exponential_(generator=generator) * 40
        self.times = torch.minimum(waiting, censoring)
        self.seen = (waiting <= censoring).float()

    def __len__(self):
        return len(self.times)

    def __getitem__(self, indices):
        return self.values[indices], self.codes[indices], self.times[indices], self.seen[indices]


class RiskNetwork(nn.Module):
    def __init__(self, features, categories, hidden, dropout):
        super().__init__()
        self.embeddings = nn.Embedding(12 * categories, 8)
        self.register_buffer("offsets", 12 * torch.arange(categories))
        width = features + 8 * categories
        self.layers = nn.Sequential(
            nn.Linear(width, hidden),
            nn.LayerNorm(hidden),
            nn.SiLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.LayerNorm(hidden),
            nn.SiLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, 1, bias=False),
        )

    def forward(self, values, codes):
        embedded = self.embeddings(codes + self.offsets).flatten(1)
        return self.layers(torch.cat([values, embedded], dim=1)).squeeze(1)


class PartialLikelihood(nn.Module):
    """Negative partial log-likelihood of a batch after Cox."""

    def forward(self, risk, times, seen):
        order = times.argsort(descending=True)
        risk, seen = risk[order], seen[order]
        log_sums = torch.logcumsumexp(risk, dim=0)
        return -((risk - log_sums) * seen).sum() / seen.sum().clamp(min=1)


@torch.no_grad()
def concordance(model, data, limit=1500):
    model.eval()
    values, codes, times, seen = data[torch.arange(min(limit, len(data)))]
    risk = model(values, codes)
    comparable = (times[:, None] < times[None, :]) & seen.bool()[:, None]
    ordered = (risk[:, None] > risk[None, :]) & comparable
    model.train()
    return (ordered.sum() / comparable.sum()).item()


def make_loader(data, batch_size):
    sampler = BatchSampler(RandomSampler(data), batch_size, drop_last=True)
    return DataLoader(data, sampler=sampler, batch_size=None)


def train(args):
    torch.manual_seed(args.seed)
    train_data = Patients(args.patients, args.features, args.categories, args.seed)
    test_data = Patients(2000, args.features, args.categories, args.seed + 1)
    loader = make_loader(train_data, args.batch_size)
    model = RiskNetwork(args.features, args.categories, args.hidden, args.dropout)
    criterion = PartialLikelihood()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, args.epochs * len(loader))
    for epoch in range(args.epochs):
        total = 0.0
        for values, codes, times, seen in loader:
            loss = criterion(model(values, codes), times, seen)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        if (epoch + 1) % 4 == 0:
            print(f"epoch {epoch + 1:2d}  loss {total / len(loader):.4f}  c-index {concordance(model, test_data):.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patients", type=int, default=40960)
    parser.add_argument("--features", type=int, default=40)
    parser.add_argument("--categories", type=int, default=10)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=31)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
