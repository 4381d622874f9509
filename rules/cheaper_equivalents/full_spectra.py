"""Real signals go through complex Fourier transforms.

## What it looks at
`torch.fft.fft`, `fft2` or `fftn` of a real tensor, what is computed on its spectrum, and the inverse transform of which
the script takes the real part, with their backward pass. A script that goes on with complex numbers, or that takes the
real part of the spectrum itself, is left alone. Needs recorded shapes and types.

## Why it costs time
The spectrum of a real signal of n values has n // 2 + 1 different ones. The rest are their conjugates: they are
transformed, filtered, stored for the backward pass and transformed back for nothing. The input is first copied into
complex numbers, of twice the size.

## How to fix it
`torch.fft.rfft2` and `irfft2` (or `rfft` and `irfft`) with the size of the signal. A filter then has columns // 2 + 1
columns; of a trained one, the first ones of the old filter are these.

## When to leave it
Where the filter is meant to treat frequencies and their conjugates differently: then the result is complex, and its
real part is another function of the input.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import (
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    Ints,
    Lines,
    Price,
    StepOps,
    constant,
    dims_of,
    dtypes_of,
    sizes,
    with_backward,
)

from ..shared._examples import node, two_steps
from ..shared._words import often
from ._equivalent import Equivalent, worth

_FORWARD = tuple(f"aten::fft_{name}" for name in ("fft", "fft2", "fftn"))
_INVERSE = tuple(f"aten::fft_{name}" for name in ("ifft", "ifft2", "ifftn"))
_SAVED = constant("share.full_spectrum").range
# Outermost ops between a transform and its inverse: more are a network on the spectrum.
_REACH = 40
_FIX = Fix(
    "Use `torch.fft.rfft2` and `irfft2`",
    "semantics",
    "spectrum = torch.fft.fft2(x) * weight  # columns\nx = torch.fft.ifft2(spectrum).real",
    "spectrum = torch.fft.rfft2(x) * weight  # columns // 2 + 1\nx = torch.fft.irfft2(spectrum, x.shape[-2:])",
)


def check(
    price: Price,
    lines: Lines | None,
    *,
    min_share: float = 0.03,  # two calls to change, and the size of a filter
) -> Iterator[Finding]:
    found = list(_round_trips(price.ops))
    if not found:
        return
    events = price.ops.events
    rows = np.unique(np.concatenate(found))
    first = np.array(sorted({int(mine[0]) for mine in found}), np.int64)
    one = Equivalent(
        parts=((with_backward(events, rows), *_SAVED),),
        how="the share of these ops' time, backward pass included, that rfft and irfft saved in measurements on a CPU",
        shown=first,
        timed_on_device=False,
    )
    if known := worth(price, lines, one, min_share):
        calls = len(found) / price.ops.steps.count
        yield known.finding(
            f"Real signals are transformed as complex ones{known.at}, {often(calls)}: {known.spent} for transforms and "
            "what is computed between them, backward pass included, although half of the frequencies repeat others.",
            {"round_trips": calls, "spent_us": known.spent_us},
            _FIX,
        )


def _round_trips(ops: StepOps) -> Iterator[Ints]:
    """The ops from a transform of real numbers to the real part of an inverse one, which work on complex numbers."""
    rows, events = ops.outermost, ops.events
    for at in np.flatnonzero(events.exactly(*_FORWARD)[rows]).tolist():
        if _is_complex(ops, int(rows[at])) or not sizes(dims_of(events, int(rows[at])), 0):
            continue
        mine: list[int] = []
        inverse = False
        for row in rows[at : at + _REACH].tolist():
            name = events.text(row)
            if inverse:
                if name == "aten::real":
                    yield np.array([*mine, row], np.int64)
                break
            if _is_complex(ops, row) or name in _FORWARD:
                mine.append(row)
            inverse = name in _INVERSE


def _is_complex(ops: StepOps, row: int) -> bool:
    """Whether one of its operands holds complex numbers."""
    return any("complex" in str(kind) for kind in dtypes_of(ops.events, row))


_X = [8, 32, 32, 64]
_COMPLEX = "c10::complex<float>"


def _op(name: str, kind: str, number: int) -> Ev:
    return Ev(f"aten::{name}", dims=[_X], dtypes=[kind], args={"Sequence number": number, "Fwd thread id": 0})


_OPS: dict[str, Any] = {
    "T": _op("fft_fft2", "float", 1),
    "M": _op("mul", _COMPLEX, 2),
    "I": _op("fft_ifft2", _COMPLEX, 3),
    "R": _op("real", _COMPLEX, 4),
    "W": node(4, "RealBackward0"),
    "X": node(3, "FftC2CBackward0"),
    "Y": node(2, "MulBackward0"),
    "Z": node(1, "FftC2CBackward0"),
}


def _drawn(**changed: Any) -> Drawing:
    """A transform (T), a product with a filter (M), the inverse (I), its real part (R), and their nodes."""
    return two_steps("[F  ][T  ][M ][I  ][R][W][X  ][Y ][Z  ][B  ][O ]", **(_OPS | changed))


EXAMPLES = [
    Example(
        "a filter of all frequencies", _drawn(), saves_us=(300, 2000), says=("half of the frequencies repeat others",)
    ),
    Example("the signal is complex", _drawn(T=_op("fft_fft2", _COMPLEX, 1)), None, near_miss=True),
    Example("the magnitude of what comes back", _drawn(R=_op("abs", _COMPLEX, 4)), None, near_miss=True),
    Example("half of the frequencies", _drawn(T=_op("fft_rfft2", "float", 1), R=_op("add", "float", 4))),
]
