"""Metric learning on pictures of watches: PK batches, a small embedding network and a multi-similarity loss."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class WatchPictures:
    """Each model has its own dial; pictures differ in light and noise."""

    def __init__(self, models, per_model, seed=3):
        g = torch.Generator().manual_seed(seed)
        dials = torch.rand(3, 8, 8, generator=g) + 0.3 * torch.randn(models, 3, 8, 8, generator=g)
        dials = F.interpolate(dials, size=32, mode="bilinear")
        light = 0.6 + 0.8 * torch.rand(models, per_model, 1, 1, 1, generator=g)
        noise = 0.8 * torch.randn(models, per_model, 3, 32, 32, generator=g)
        self.pictures = dials[:, None] * light + noise
        self.models, self.per_model = models, per_model

    def pk_batch(self, p, k, generator):
        which = torch.randperm(self.models, generator=generator)[:p]
        shots = torch.rand(p, self.per_model, generator=generator).argsort(1)[:, :k]
        return self.pictures[which[:, None], shots].flatten(0, 1), which.repeat_interleave(k)


class EmbeddingNet(nn.Module):
    def __init__(self, dim=64, width=16):
        super().__init__()
        layers, chans = [], 3
        for step in range(3):
            out = width * 2**step
            layers += [nn.Conv2d(chans, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(), nn.MaxPool2d(2)]
            chans = out
        self.features = nn.Sequential(*layers)
        self.embed = nn.Linear(chans, dim)

    def forward(self, x):
        return F.normalize(self.embed(self.features(x).amax((2, 3))), dim=1)


class MultiSimilarityLoss(nn.Module):
    def __init__(self, thresh=0.5, margin=0.1, scale_pos=2.0, scale_neg=40.0):
        super().__init__()
        self.thresh, self.margin = thresh, margin
        self.scale_pos, self.scale_neg = scale_pos, scale_neg

    def forward(self, feats, labels):
        sim = feats @ feats.t()
        loss = feats.new_zeros(())
        for i in range(len(feats)):
            pos = sim[i][labels == labels[i]]
            pos = pos[pos < 1 - 1e-5]
            neg = sim[i][labels != labels[i]]
            hard_neg = neg[neg + self.margin > pos.min()]
            hard_pos = pos[pos - self.margin < neg.max()]
            if len(hard_neg) < 1 or len(hard_pos) < 1:
                continue
            loss = loss + torch.log1p(torch.exp(-self.scale_pos * (hard_pos - self.thresh)).sum()) / self.scale_pos
            loss = loss + torch.log1p(torch.exp(self.scale_neg * (hard_neg - self.thresh)).sum()) / self.scale_neg
        return loss / len(feats)


def recall_at_1(net, pictures):
    net.eval()
    with torch.no_grad():
        feats = net(pictures[:, :4].flatten(0, 1))
    net.train()
    labels = torch.arange(len(pictures)).repeat_interleave(4)
    sim = (feats @ feats.t()).fill_diagonal_(-2)
    return (labels[sim.argmax(1)] == labels).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iters", type=int, default=260)
    parser.add_argument("--p", type=int, default=12)
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    data, generator = WatchPictures(60, 12), torch.Generator().manual_seed(1)
    net, criterion = EmbeddingNet(), MultiSimilarityLoss()
    optimizer = torch.optim.AdamW(net.parameters(), lr=args.lr, weight_decay=5e-4)
    for step in range(1, args.iters + 1):
        pictures, labels = data.pk_batch(args.p, args.k, generator)
        loss = criterion(net(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 65 == 0:
            print(f"iter {step}: loss {loss.item():.4f} recall@1 {recall_at_1(net, data.pictures):.3f}")


if __name__ == "__main__":
    main()
