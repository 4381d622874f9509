"""Change detection between two satellite pictures of the same place."""

import argparse

import torch
import torch.nn.functional as F
from metrics import confusion, scores
from torch import nn


def make_pairs(count, side, seed):
    gen = torch.Generator().manual_seed(seed)
    before = F.interpolate(torch.rand(count, 3, side // 8, side // 8, generator=gen), side, mode="bilinear")
    spots = torch.rand(count, 1, side // 16, side // 16, generator=gen)
    mask = F.interpolate(spots, side, mode="bilinear").squeeze(1) > 0.7
    after = torch.where(mask[:, None], 1 - before, before) + 0.05 * torch.randn(count, 3, side, side, generator=gen)
    return before, after, mask.long()


class Siamese(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
        )
        self.decoder = nn.Sequential(nn.Conv2d(2 * width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 2, 1))

    def forward(self, before, after):
        difference = (self.encoder(before) - self.encoder(after)).abs()
        return F.interpolate(self.decoder(difference), before.shape[-2:], mode="bilinear")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=160)
    parser.add_argument("--side", type=int, default=96)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    before, after, mask = make_pairs(args.pairs, args.side, seed=2)
    model = Siamese()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
    weight = torch.tensor([1.0, 3.0])
    for epoch in range(args.epochs):
        running = {"precision": 0.0, "recall": 0.0, "f1": 0.0}
        steps = 0
        for rows in torch.randperm(args.pairs).split(args.batch):
            logits = model(before[rows], after[rows])
            loss = F.cross_entropy(logits, mask[rows], weight=weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            predicted = logits.argmax(1)
            table = confusion(mask[rows].flatten().tolist(), predicted.flatten().tolist())
            for name, value in scores(table).items():
                running[name] += value
            steps += 1
        print(f"epoch {epoch}: loss {loss.item():.4f}", {k: round(float(v) / steps, 3) for k, v in running.items()})


if __name__ == "__main__":
    main()
