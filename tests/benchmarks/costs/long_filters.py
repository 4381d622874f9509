"""What convolutions of each channel with a long filter take, against the same by Fourier transforms.

    python tests/benchmarks/costs/long_filters.py

`F.conv1d(F.pad(x, (taps - 1, 0)), filters, groups=channels)` against a product of `torch.fft.rfft` of both, padded to
the length of the result, forward and backward pass, in turns; medians. Prints, for each shape and number of threads,
the share that is saved. Measure on a machine that does nothing else.
"""

from __future__ import annotations

import itertools
import statistics

import torch
import torch.nn.functional as F  # noqa: N812
from copied_matrices import TURNS, took

SHAPES = [
    (samples, channels, length, taps)
    for samples, channels, length, taps in itertools.product(
        (4, 32), (1, 16, 64), (512, 4096), (64, 128, 256, 512, 2048)
    )
    if taps <= length and samples * channels * length * taps <= 1 << 31
]


def saved(samples: int, channels: int, length: int, taps: int) -> float:
    """The share of the direct convolution that goes."""
    x = torch.randn(samples, channels, length, requires_grad=True)
    filters = torch.randn(channels, taps, requires_grad=True)
    whole = length + taps - 1

    def direct() -> torch.Tensor:
        return F.conv1d(F.pad(x, (taps - 1, 0)), filters.flip(1).unsqueeze(1), groups=channels)

    def spectral() -> torch.Tensor:
        product = torch.fft.rfft(x, n=whole) * torch.fft.rfft(filters, n=whole)
        return torch.fft.irfft(product, n=whole)[..., :length]

    torch.testing.assert_close(direct(), spectral(), rtol=1e-3, atol=1e-3)
    inputs = [x, filters]
    times = max(1, int(2e-3 / took(direct, inputs, 1)))
    turns = [[took(way, inputs, times) for way in (direct, spectral)] for _ in range(TURNS)]
    slow, fast = (statistics.median(turn[at] for turn in turns) for at in (0, 1))
    return 1 - fast / slow


def main() -> None:
    """The table."""
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for shape in SHAPES:
            print(threads, shape, f"{saved(*shape):.2f}", flush=True)


if __name__ == "__main__":
    main()
