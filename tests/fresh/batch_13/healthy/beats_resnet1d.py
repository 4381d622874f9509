"""Sort heart beats by type: whole batches are indexed from memory, everything vectorised."""

import torch
from torch import nn
from torch.nn import functional as F


def make_beats(count, seed, length=256, kinds=5):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, kinds, (count,), generator=generator)
    time = torch.linspace(-1, 1, length)
    width = 0.04 + 0.03 * labels[:, None]
    centre = 0.3 * (torch.rand(count, 1, generator=generator) - 0.5)
    beats = torch.exp(-(((time - centre) / width) ** 2)) - 0.4 * torch.exp(-(((time - centre - 0.2) / 0.1) ** 2))
    return (beats + 0.2 * torch.randn(count, length, generator=generator))[:, None], labels


class Residual(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv1d(inside, outside, 7, stride, 3, bias=False), nn.BatchNorm1d(outside), nn.ReLU(inplace=True),
            nn.Conv1d(outside, outside, 7, 1, 3, bias=False), nn.BatchNorm1d(outside),
        )  # fmt: skip
        self.skip = nn.Conv1d(inside, outside, 1, stride, bias=False)

    def forward(self, x):
        return F.relu(self.main(x) + self.skip(x))


def augment(beats):
    scale = 1 + 0.1 * torch.randn(len(beats), 1, 1)
    return beats * scale + 0.05 * torch.randn_like(beats)


@torch.inference_mode()
def evaluate(model, beats, labels):
    model.eval()
    right = sum(int((model(x).argmax(1) == y).sum()) for x, y in zip(beats.split(512), labels.split(512), strict=True))
    model.train()
    return right / len(labels)


def main(epochs=3, batch_size=64):
    torch.manual_seed(0)
    beats, labels = make_beats(6400, 1)
    held_beats, held_labels = make_beats(1024, 2)
    model = nn.Sequential(
        nn.Conv1d(1, 24, 7, 2, 3), Residual(24, 32, 2), Residual(32, 48, 2), Residual(48, 64, 2),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 5),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(beats) // batch_size)
    for epoch in range(epochs):
        total = torch.zeros(())
        for rows in torch.randperm(len(beats)).split(batch_size):
            loss = F.cross_entropy(model(augment(beats[rows])), labels[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.detach()
        print(f"epoch {epoch}: loss {total.item():.2f}, accuracy {evaluate(model, held_beats, held_labels):.3f}")


if __name__ == "__main__":
    main()
