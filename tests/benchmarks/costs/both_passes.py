"""The forward and the backward pass of ways to compute the same: what several of these benchmarks time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import torch

Way = Callable[[torch.Tensor], torch.Tensor]
_WARM = 2


def both_us(of: Way, x: torch.Tensor) -> float:
    """One forward and backward pass."""
    x.grad = None
    began = time.perf_counter()
    y = of(x)
    y.backward(torch.ones_like(y))
    return (time.perf_counter() - began) * 1e6


def medians_us(ways: Sequence[Way], x: torch.Tensor, repeats: int) -> list[float]:
    """Of each way, which run in turns."""
    times = [[both_us(way, x) for way in ways] for _ in range(repeats + _WARM)][_WARM:]
    return [statistics.median(of) for of in zip(*times, strict=True)]
