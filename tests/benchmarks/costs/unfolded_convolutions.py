"""Convolutions written as `unfold` and a matrix product beside `conv2d`, with the backward pass: shares that are left.

    python tests/benchmarks/costs/unfolded_convolutions.py

Of each size the ways are timed in turns, and the medians divided. The last lines are the least and the most share, of
windows that overlap and of patches beside each other.
"""

from __future__ import annotations

import torch
from both_passes import Way, medians_us
from torch.nn import functional

Tensor = torch.Tensor
_REPEATS = 7
# (samples, channels, made, size, window, stride)
_WINDOWS = [
    (16, 3, 16, 48, 3, 1),
    (16, 16, 32, 48, 3, 1),
    (32, 32, 32, 24, 3, 1),
    (8, 64, 64, 28, 3, 1),
    (16, 8, 16, 32, 5, 1),
    (16, 16, 32, 32, 3, 2),
    (4, 16, 16, 64, 7, 1),
    (64, 64, 128, 8, 3, 1),
]
_PATCHES = [(16, 3, 64, 64, 8, 8), (16, 3, 192, 96, 16, 16), (32, 3, 128, 32, 4, 4), (8, 16, 64, 64, 4, 4)]


def left(samples: int, channels: int, made: int, size: int, window: int, stride: int) -> list[float]:
    """Shares of each written form's time that `conv2d` takes."""
    x = torch.randn(samples, channels, size, size, requires_grad=True)
    weight = torch.randn(made, channels * window * window, requires_grad=True)
    padding = 0 if stride == window else window // 2

    def columns(x: Tensor) -> Tensor:
        return functional.unfold(x, window, padding=padding, stride=stride)

    forms: list[Way] = [
        lambda x: weight @ columns(x),
        lambda x: functional.linear(columns(x).transpose(1, 2), weight),
        lambda x: functional.conv2d(x, weight.view(made, channels, window, window), stride=stride, padding=padding),
    ]
    medians = medians_us(forms, x, _REPEATS)
    return [medians[-1] / us for us in medians[:-1]]


def main() -> None:
    for name, sizes in (("windows", _WINDOWS), ("patches", _PATCHES)):
        found = []
        for size in sizes:
            shares = left(*size)
            print(f"{name} {size}: {' '.join(f'{one:.2f}' for one in shares)}", flush=True)
            found += shares
        print(f"{name}: {min(found):.2f} to {max(found):.2f} (n = {len(found)})")


if __name__ == "__main__":
    main()
