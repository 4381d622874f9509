"""Counts the kinds of gulls in clips of colonies: log mel spectrogram, convolutions, one output for each kind."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

KINDS = ("herring", "kittiwake", "black-headed", "common")
PITCHES = (900.0, 1500.0, 2100.0, 3000.0)


def hz_to_mel(hz):
    return 2595.0 * np.log10(1.0 + hz / 700.0)


def mel_to_hz(mel):
    return 700.0 * (10.0 ** (mel / 2595.0) - 1.0)


def mel_filters(rate: int, n_fft: int, n_mels: int) -> np.ndarray:
    """Triangles of equal width on the mel scale, one row for each filter."""
    edges = mel_to_hz(np.linspace(hz_to_mel(50.0), hz_to_mel(rate / 2), n_mels + 2))
    bins = np.linspace(0, rate / 2, n_fft // 2 + 1)
    filters = np.zeros((n_mels, len(bins)), dtype=np.float32)
    for i in range(n_mels):
        low, centre, high = edges[i : i + 3]
        rising = (bins - low) / (centre - low)
        falling = (high - bins) / (high - centre)
        filters[i] = np.maximum(0.0, np.minimum(rising, falling))
        area = filters[i].sum()
        if area > 0:
            filters[i] /= area
    return filters


def record_colonies(count: int, rate: int, seconds: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Clips in 16 bits, in which some of the kinds call several times over wind and surf."""
    rng = np.random.default_rng(seed)
    length = int(rate * seconds)
    time = np.arange(length) / rate
    present = (rng.random((count, len(KINDS))) < 0.4).astype(np.float32)
    clips = np.empty((count, length), dtype=np.int16)
    for n in range(count):
        sound = 0.05 * rng.standard_normal(length)
        for kind in np.flatnonzero(present[n]):
            for start in rng.uniform(0, seconds - 0.2, 3):
                local = time - start
                envelope = np.where(local > 0, np.exp(-12 * np.maximum(local, 0)), 0.0)
                sweep = PITCHES[kind] * (1 + 0.2 * local) + 40 * rng.standard_normal()
                sound += 0.25 * envelope * np.sin(2 * np.pi * sweep * local)
        clips[n] = np.clip(sound * 32767 / 2, -32768, 32767)
    return clips, present


class ColonyClips(Dataset):
    def __init__(self, clips: np.ndarray, present: np.ndarray, rate: int, n_fft: int, hop: int, n_mels: int):
        self.clips, self.present = clips, present
        self.n_fft, self.hop = n_fft, hop
        self.window = torch.hann_window(n_fft)
        self.filters = torch.from_numpy(mel_filters(rate, n_fft, n_mels))

    def __len__(self) -> int:
        return len(self.clips)

    def log_mel(self, wave: torch.Tensor) -> torch.Tensor:
        spectrum = torch.stft(wave, self.n_fft, self.hop, window=self.window, return_complex=True)
        return torch.log(self.filters @ spectrum.abs().square() + 1e-5)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        wave = torch.from_numpy(self.clips[index].astype(np.float32) / 32768)
        return self.log_mel(wave), torch.from_numpy(self.present[index])


class CallDetector(nn.Module):
    def __init__(self, n_mels: int, width: int, kinds: int):
        super().__init__()
        layers, channels = [nn.BatchNorm1d(n_mels)], n_mels
        for step in range(4):
            layers += [
                nn.Conv1d(channels, width, 5, stride=1 + step % 2, padding=2),
                nn.BatchNorm1d(width),
                nn.ReLU(inplace=True),
            ]
            channels = width
        self.features = nn.Sequential(*layers)
        self.frames = nn.Conv1d(width, kinds, 1)

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        return torch.logsumexp(self.frames(self.features(mel)), dim=2)


@torch.inference_mode()
def evaluate(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    right = total = 0
    for mel, present in loader:
        right += ((model(mel) > 0) == (present > 0.5)).sum().item()
        total += present.numel()
    return right / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clips", type=int, default=960)
    parser.add_argument("--rate", type=int, default=8000)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--n-fft", type=int, default=512)
    parser.add_argument("--hop", type=int, default=128)
    parser.add_argument("--n-mels", type=int, default=64)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=41)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    clips, present = record_colonies(args.clips, args.rate, args.seconds, args.seed)
    dataset = ColonyClips(clips, present, args.rate, args.n_fft, args.hop, args.n_mels)
    train_set, test_set = random_split(dataset, [0.85, 0.15])
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=2 * args.batch_size)

    model = CallDetector(args.n_mels, args.width, len(KINDS))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(train_loader))

    with tempfile.TemporaryDirectory() as folder:
        best = 0.0
        for epoch in range(args.epochs):
            model.train()
            losses = []
            for mel, labels in train_loader:
                loss = F.binary_cross_entropy_with_logits(model(mel), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scheduler.step()
                losses.append(loss.detach())
            accuracy = evaluate(model, test_loader)
            print(f"epoch {epoch}: loss {torch.stack(losses).mean():.4f}, accuracy {accuracy:.3f}")
            if accuracy > best:
                best = accuracy
                torch.save(model.state_dict(), Path(folder, "best.pt"))
    print(f"best accuracy {best:.3f}")


if __name__ == "__main__":
    main()
