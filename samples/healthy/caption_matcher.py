"""Pictures and captions in one space: two heads over stored features, and one product of all pairs of a batch."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Head(nn.Module):
    def __init__(self, inputs, width, outputs):
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(inputs), nn.Linear(inputs, width), nn.GELU(), nn.Linear(width, width), nn.GELU()
        )
        self.out = nn.Linear(width, outputs, bias=False)

    def forward(self, x):
        return F.normalize(self.out(self.net(x)).float(), dim=-1)


class Matcher(nn.Module):
    def __init__(self, pictures=512, captions=384, shared=128):
        super().__init__()
        self.picture, self.caption = Head(pictures, 1024, shared), Head(captions, 1024, shared)
        self.sharpness = nn.Parameter(torch.tensor(2.0))

    def forward(self, pictures, captions):
        scores = self.sharpness.exp() * self.picture(pictures) @ self.caption(captions).T
        pair = torch.arange(len(scores), device=scores.device)
        return (F.cross_entropy(scores, pair) + F.cross_entropy(scores.T, pair)) / 2


def features(count, device):
    """What two frozen networks said of the same things, once."""
    meaning = torch.randn(count, 24, device=device)
    return [meaning @ torch.randn(24, width, device=device) for width in (512, 384)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--rate", type=float, default=5e-4)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    pictures, captions = features(8192, device)
    model = Matcher().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate, fused=True)
    for epoch in range(args.epochs):
        total = torch.zeros((), device=device)
        for chosen in torch.randperm(len(pictures), device=device).split(args.batch):
            with torch.autocast(device, dtype=torch.bfloat16):
                loss = model(pictures[chosen], captions[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: {total.item() * args.batch / len(pictures):.4f}")


if __name__ == "__main__":
    main()
