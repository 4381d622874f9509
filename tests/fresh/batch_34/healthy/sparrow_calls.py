"""Sparrows by their calls: log-mel features computed once for all clips, then an attention-pooled GRU."""

import argparse
import math
import os
import tempfile

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SPECIES = ("house", "tree", "song", "fox", "rock")
RATE = 8000


def synthesise(clips: int, seconds: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Chirps whose pitch, sweep and rhythm belong to a species, under noise."""
    labels = torch.randint(len(SPECIES), (clips,), generator=generator)
    kind = labels.float().unsqueeze(1)
    time = torch.arange(int(seconds * RATE)) / RATE
    pitch = 1200 + 350 * kind + 150 * torch.randn(clips, 1, generator=generator)
    sweep = 250 * torch.sin(2 * math.pi * (2 + kind) * time)
    phase = torch.cumsum(2 * math.pi * (pitch + sweep) / RATE, dim=1)
    rhythm = torch.sigmoid(12 * torch.sin(2 * math.pi * (3 + 0.7 * kind) * time + 6 * kind))
    noise = 0.8 * torch.randn(clips, time.numel(), generator=generator)
    return torch.sin(phase) * rhythm + noise, labels


def mel_matrix(bins: int, bands: int) -> Tensor:
    top = 2595 * math.log10(1 + RATE / 2 / 700)
    edges = 700 * (10 ** (torch.linspace(0, top, bands + 2) / 2595) - 1)
    frequencies = torch.linspace(0, RATE / 2, bins).unsqueeze(1)
    rising = (frequencies - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - frequencies) / (edges[2:] - edges[1:-1])
    return torch.minimum(rising, falling).clamp(min=0)


@torch.no_grad()
def log_mel(waves: Tensor, bands: int, window: int = 256, hop: int = 160) -> Tensor:
    hann, matrix = torch.hann_window(window), mel_matrix(window // 2 + 1, bands)
    pieces = []
    for part in waves.split(128):
        spectrum = torch.stft(part, window, hop, window=hann, return_complex=True)
        power = spectrum.real.square() + spectrum.imag.square()
        pieces.append(torch.log(power.transpose(1, 2) @ matrix + 1e-4))
    features = torch.cat(pieces)
    return (features - features.mean((0, 1))) / features.std((0, 1))


class CallNet(nn.Module):
    def __init__(self, bands: int, hidden: int):
        super().__init__()
        self.gru = nn.GRU(bands, hidden, batch_first=True, bidirectional=True)
        self.score = nn.Linear(2 * hidden, 1)
        self.out = nn.Sequential(nn.Dropout(0.2), nn.Linear(2 * hidden, len(SPECIES)))

    def forward(self, features: Tensor) -> Tensor:
        states, _ = self.gru(features)
        weights = torch.softmax(self.score(states), dim=1)
        return self.out((weights.transpose(1, 2) @ states).squeeze(1))


@torch.inference_mode()
def evaluate(model: nn.Module, features: Tensor, labels: Tensor) -> float:
    model.eval()
    logits = torch.cat([model(part) for part in features.split(256)])
    return (logits.argmax(1) == labels).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clips", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=0.8)
    parser.add_argument("--bands", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=96)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=70)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    waves, labels = synthesise(args.clips, args.seconds, torch.Generator().manual_seed(args.seed))
    features = log_mel(waves, args.bands)
    border = int(0.85 * args.clips)
    model = CallNet(args.bands, args.hidden)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    steps = border // args.batch_size
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * steps)

    best = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(args.epochs):
            model.train()
            total = torch.zeros(())
            for chosen in torch.randperm(border)[: steps * args.batch_size].split(args.batch_size):
                loss = F.cross_entropy(model(features[chosen]), labels[chosen])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scheduler.step()
                total += loss.detach()
            accuracy = evaluate(model, features[border:], labels[border:])
            print(f"epoch {epoch}: loss {total.item() / steps:.3f}, accuracy {accuracy:.3f}")
            if accuracy > best:
                best = accuracy
                torch.save(model.state_dict(), os.path.join(folder, "best.pt"))


if __name__ == "__main__":
    main()
