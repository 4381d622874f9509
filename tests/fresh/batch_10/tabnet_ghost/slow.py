"""Loan applications with TabNet: features are chosen by sparse masks in several decision steps."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    rows: int = 40_960
    features: int = 32
    width: int = 24
    decisions: int = 3
    batch_size: int = 2048
    virtual_batch_size: int = 32
    epochs: int = 5
    lr: float = 0.02
    sparsity: float = 1e-3


def applications(cfg, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(cfg.rows, cfg.features, generator=g)
    risk = x[:, 0] * x[:, 1] + torch.relu(x[:, 2]) - 0.5 * x[:, 3].abs() + 0.5 * torch.randn(cfg.rows, generator=g)
    return x, (risk > 0).long()


class GhostNorm(nn.Module):
    """Batch normalisation over parts of the batch, as if it were several small ones."""

    def __init__(self, width, size, momentum=0.02):
        super().__init__()
        self.norm = nn.BatchNorm1d(width, momentum=momentum)
        self.size = size

    def forward(self, x):
        if not self.training:
            return self.norm(x)
        return torch.cat([self.norm(part) for part in x.split(self.size)])


class Gated(nn.Module):
    def __init__(self, inputs, outputs, size):
        super().__init__()
        self.linear = nn.Linear(inputs, 2 * outputs, bias=False)
        self.norm = GhostNorm(2 * outputs, size)

    def forward(self, x):
        return F.glu(self.norm(self.linear(x)))


class FeatureTransformer(nn.Module):
    def __init__(self, shared, width, size):
        super().__init__()
        self.shared = shared
        self.own = nn.ModuleList(Gated(width, width, size) for _ in range(2))

    def forward(self, x):
        x = self.shared(x)
        for layer in self.own:
            x = (x + layer(x)) * 0.5**0.5
        return x


def sparsemax(z):
    ordered = z.sort(dim=1, descending=True).values
    ranks = torch.arange(1, z.shape[1] + 1)
    sums = ordered.cumsum(1) - 1
    size = (ranks * ordered > sums).sum(1, keepdim=True)
    return (z - sums.gather(1, size - 1) / size).clamp(min=0)


class TabNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        size, total = cfg.virtual_batch_size, 2 * cfg.width
        self.first = nn.BatchNorm1d(cfg.features)
        shared = Gated(cfg.features, total, size)
        self.steps = nn.ModuleList(FeatureTransformer(shared, total, size) for _ in range(cfg.decisions + 1))
        self.masks = nn.ModuleList(nn.Linear(cfg.width, cfg.features, bias=False) for _ in range(cfg.decisions))
        self.mask_norms = nn.ModuleList(GhostNorm(cfg.features, size) for _ in range(cfg.decisions))
        self.out = nn.Linear(cfg.width, 2)

    def forward(self, x):
        x = self.first(x)
        attention = self.steps[0](x).chunk(2, 1)[1]
        prior, decision, entropy = torch.ones_like(x), 0.0, 0.0
        for step, linear, norm in zip(self.steps[1:], self.masks, self.mask_norms, strict=True):
            mask = sparsemax(norm(linear(attention)) * prior)
            prior = prior * (1.3 - mask)
            entropy = entropy - (mask * (mask + 1e-10).log()).sum(1).mean()
            decided, attention = step(mask * x).chunk(2, 1)
            decision = decision + F.relu(decided)
        return self.out(decision), entropy / len(self.masks)


def fit(cfg):
    torch.manual_seed(0)
    x, y = applications(cfg, seed=12)
    model = TabNet(cfg)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    for epoch in range(cfg.epochs):
        model.train()
        for rows in torch.randperm(cfg.rows).split(cfg.batch_size):
            logits, entropy = model(x[rows])
            loss = F.cross_entropy(logits, y[rows]) + cfg.sparsity * entropy
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = (model(x[:4096])[0].argmax(1) == y[:4096]).float().mean()
        print(f"epoch {epoch}: loss {loss.item():.4f} accuracy {right.item():.3f}")


if __name__ == "__main__":
    fit(Config())
