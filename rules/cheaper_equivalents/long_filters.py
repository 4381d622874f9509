"""Channels are convolved with long filters directly, not by Fourier transforms.

## What it looks at
One-dimensional convolutions in which each channel has a filter of its own (`groups` as many as channels, or one
channel), with at least 256 taps, at stride 1, and their backward pass: impulse responses of
rooms, filters as long as a sequence.

## Why it costs time
Each result of a filter with k taps takes k multiplications, in the forward pass once and in the backward pass twice.
By Fourier transforms it takes as many as the logarithm of the length, whatever k is.

## How to fix it
Multiply the transforms of both, padded to the length of the whole result, and transform the product back.
`torchaudio.functional.fftconvolve` does that.

## When to leave it
Short filters, for which transforms take longer. Results differ in the last digits: most where a loud part of a signal
is near a quiet one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from advisor.api import (
    Category,
    Drawing,
    Ev,
    Events,
    Example,
    Finding,
    Fix,
    Lines,
    Price,
    constant,
    dims_of,
    sizes,
    with_backward,
    work_of,
)

from ..shared._examples import node, two_steps
from ..shared._words import count, often
from ._equivalent import Equivalent, rows_of, worth

# Measured shares that go, by taps; between two of them from the least of one to the most of the other. With 64 and 128
# taps transforms also took up to twice as long.
_LEAST_TAPS = 256
_AT = (
    (_LEAST_TAPS, constant("share.long_filter")),
    (512, constant("share.longer_filter")),
    (2048, constant("share.longest_filter")),
)
# Where the result is shorter than the filter, transforms of the whole signal compute much that is not needed.
_LEAST_OF_FILTER = 0.5
_NEARLY = 0.9
_HOW = "the share of these convolutions' time, backward pass included, that Fourier transforms saved on a CPU"
_FIX = Fix(
    "Convolve by Fourier transforms",
    "numerics",
    "y = F.conv1d(F.pad(x, (taps - 1, 0)), filters.flip(-1), groups=channels)",
    "n = x.shape[-1] + taps - 1\n"
    "y = torch.fft.irfft(torch.fft.rfft(x, n=n) * torch.fft.rfft(filters.squeeze(1), n=n), n=n)[..., : x.shape[-1]]",
)


def check(
    price: Price,
    lines: Lines | None,
    *,
    min_share: float = 0.03,  # a line or two; below 3 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    events, outer = price.ops.events, price.ops.outermost
    called = np.flatnonzero(events.of(Category.CPU_OP) & events.exactly("aten::convolution") & price.ops.links.inside)
    taps = {row: many for row in called.tolist() if (many := _taps(events, row))}
    rows = np.intersect1d(price.ops.nesting.outer_op[list(taps)], outer) if taps else np.zeros(0, np.int64)
    if not len(rows):
        return
    of_share = defaultdict(list)
    for row, many in taps.items():
        of_share[_share(many)].append(price.ops.nesting.outer_op[row])
    parts = tuple((with_backward(events, rows_of(*mine)), *share) for share, mine in of_share.items())
    one = Equivalent(parts=parts, how=_HOW, ops="long", shown=rows, timed_on_device=False)
    if known := worth(price, lines, one, min_share):
        times, most = len(rows) / price.ops.steps.count, max(taps.values())
        yield known.finding(
            f"Filters of {count(most)} taps are applied directly{known.at}, {often(times)}: {known.spent}, with the "
            "backward pass.",
            {"taps": most, "times": times, "spent_us": known.spent_us},
            _FIX,
        )


def _share(taps: int) -> tuple[float, float]:
    """The share that goes, at least and at most."""
    low = [known.range[0] for at, known in _AT if at <= taps][-1]
    return low, next((known.range[1] for at, known in _AT if at >= taps), _AT[-1][1].range[1])


def _taps(events: Events, row: int) -> int:
    """Taps of the filters of a convolution channel by channel; 0 where it is another one, or its filters are short."""
    dims = dims_of(events, row)
    signal, filters = sizes(dims, 0), sizes(dims, 1)
    if len(signal) != 3 or len(filters) != 3 or filters[1] != 1 or filters[0] != signal[1]:
        return 0
    taps, results = filters[2], signal[2] - filters[2] + 1
    if taps < _LEAST_TAPS or results < _LEAST_OF_FILTER * taps:
        return 0
    work = work_of(events, row)
    # Where only every tenth result is asked for, as by a transform in short windows, it takes a tenth.
    each = work is not None and work.flops >= 2 * _NEARLY * signal[0] * filters[0] * results * taps
    return taps if each else 0


def _drawn(signal: list[int], filters: list[int], stride: int = 1) -> Drawing:
    """A layer (F), the filters (C), the loss and their nodes."""
    values = ["", "", "", f"[{stride}]", "[0]", "[1]", "False", "[0]", str(filters[0])]
    args = {"Concrete Inputs": values, "Sequence number": 1, "Fwd thread id": 0}
    called = Ev("aten::convolution", dims=[signal, filters], dtypes=["float", "float"], args=args)
    return two_steps("[F   ][C            ][X              ][B   ][O ]", C=called, X=node(1, "ConvolutionBackward0"))


EXAMPLES = [
    Example(
        "filters as long as the sequence",
        _drawn([8, 32, 2047], [32, 1, 1024]),
        saves_us=(0, 3300),
        says=("Filters of 1,024 taps", "once"),
    ),
    Example("a short one", _drawn([8, 32, 1026], [32, 1, 3]), near_miss=True),
    Example("all channels in each result", _drawn([8, 32, 2047], [32, 32, 1024]), near_miss=True),
    Example("results far apart, as of windows", _drawn([8, 1, 16000], [1, 1, 400], 160), near_miss=True),
    Example("a filter as long as the signal: one result", _drawn([8, 1, 1024], [1, 1, 1024])),
]
