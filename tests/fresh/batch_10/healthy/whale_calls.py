"""Calls of whales in hydrophone recordings: spectrograms are made once, a convolutional network learns from them."""

import torch
import torch.nn.functional as F
from torch import nn


def recordings(count, kinds, samples, seed):
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(kinds, (count,), generator=g)
    time = torch.linspace(0, 1, samples)
    sweep = 200 * (1 + kind)[:, None] * time + 80 * time.square()
    return torch.sin(6.28 * sweep) + 0.8 * torch.randn(count, samples, generator=g), kind


@torch.no_grad()
def spectrograms(waves, size=256, hop=128):
    window = torch.hann_window(size)
    parts = [torch.stft(part, size, hop, window=window, return_complex=True).abs() for part in waves.split(256)]
    return torch.cat(parts).log1p()[:, None]


def conv(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
    )


class CallNet(nn.Module):
    def __init__(self, kinds, width=8):
        super().__init__()
        self.body = nn.Sequential(conv(1, width), conv(width, 2 * width), conv(2 * width, 4 * width))
        self.head = nn.Linear(4 * width, kinds)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


@torch.no_grad()
def accuracy(model, sound, kind):
    model.eval()
    guesses = torch.cat([model(part).argmax(1) for part in sound.split(256)])
    model.train()
    return (guesses == kind).float().mean().item()


def main(count=2048, kinds=6, epochs=5, batch=64):
    torch.manual_seed(0)
    waves, kind = recordings(count + 256, kinds, 8000, seed=3)
    sound = spectrograms(waves)
    model = CallNet(kinds)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    for epoch in range(epochs):
        total = torch.zeros(())
        for index in torch.randperm(count).split(batch):
            loss = F.cross_entropy(model(sound[index]), kind[index])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        right = accuracy(model, sound[count:], kind[count:])
        print(f"epoch {epoch}: loss {total.item() * batch / count:.4f} accuracy {right:.3f}")


if __name__ == "__main__":
    main()
