"""Supervised contrastive learning of sensor windows, then a linear probe."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


def make_windows(count, classes, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (count,), generator=g)
    t = torch.linspace(0, 12.6, 192)
    phase = 6.28 * torch.rand(count, 6, 1, generator=g)
    speed = (1 + y / 3)[:, None, None] * torch.linspace(1, 2, 6)[None, :, None]
    return torch.sin(speed * t + phase) + 0.6 * torch.randn(count, 6, 192, generator=g), y


def two_views(x):
    """Each window twice: scaled, shifted in time, with noise."""
    x = torch.cat([x, x])
    scale = 1 + 0.2 * torch.randn(len(x), x.shape[1], 1)
    return torch.roll(x, int(torch.randint(0, 24, ())), dims=2) * scale + 0.1 * torch.randn_like(x)


class Encoder(nn.Module):
    def __init__(self, width=64, dim=128):
        super().__init__()
        layers, cin = [], 6
        for cout, stride in ((width, 2), (width, 1), (2 * width, 2), (2 * width, 1)):
            layers += [nn.Conv1d(cin, cout, 7, stride, 3, bias=False), nn.BatchNorm1d(cout), nn.ReLU(inplace=True)]
            cin = cout
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten())
        self.project = nn.Sequential(nn.Linear(cin, cin), nn.ReLU(), nn.Linear(cin, dim))
        self.width = cin

    def forward(self, x):
        return F.normalize(self.project(self.layers(x)), dim=1)


def supcon_loss(z, labels, temperature=0.1):
    labels = labels.repeat(2)
    logits = z @ z.t() / temperature
    itself = torch.eye(len(z), dtype=torch.bool)
    same = (labels[:, None] == labels[None]) & ~itself
    log_prob = logits - logits.masked_fill(itself, float("-inf")).logsumexp(dim=1, keepdim=True)
    return -((log_prob * same).sum(dim=1) / same.sum(dim=1)).mean()


def main(args):
    torch.manual_seed(args.seed)
    x, y = make_windows(args.windows, args.classes, args.seed)
    encoder = Encoder()
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=args.lr, fused=True)
    steps = args.epochs * (args.windows // args.batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for epoch in range(args.epochs):
        losses = []
        for rows in torch.randperm(len(x))[: len(x) // args.batch_size * args.batch_size].split(args.batch_size):
            loss = supcon_loss(encoder(two_views(x[rows])), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.detach())
        print(f"epoch {epoch}: contrastive loss {torch.stack(losses).mean().item():.4f}")

    encoder.eval()
    with torch.inference_mode():
        features = torch.cat([encoder.layers(part) for part in x.split(256)])
    features = (features - features.mean(dim=0)) / features.std(dim=0).clamp(min=1e-4)
    targets = F.one_hot(y, args.classes).float()
    weights = torch.linalg.lstsq(features[:-200], targets[:-200]).solution
    print(f"probe accuracy {((features[-200:] @ weights).argmax(dim=1) == y[-200:]).float().mean().item():.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--windows", type=int, default=1600)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--batch_size", type=int, default=80)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=9)
    main(parser.parse_args())
