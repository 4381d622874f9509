"""A full sort is computed where `topk` would do.

## What it looks at
`sort` and `argsort` calls of whose result only the first elements, or the last ones, are read: at most a quarter of
them. Profiles do not record which elements of a tensor are read; `advisor run` observes it in separate steps. Reads
from Python without a PyTorch op (`order.tolist()` in addition to a part of it) are not detected.

## Why it costs time
A sort of a thousand distances orders all of them, with ten comparisons for each and more. Finding the eight smallest
takes one pass, and a sort of eight.

## How to fix it
`values, index = x.topk(k)` for the largest in descending order, `x.topk(k, largest=False)` for the smallest;
`x.topk(k).values[..., -1]` for the k-th alone, `x.min(-1)` or `x.max(-1)` for one.

## When to leave it
Where the rest of the order is needed in steps that were not observed. Among equal elements `topk` may pick others than
a sort does; and a few rows of some dozen elements take as long either way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from advisor.api import Example, Finding, Fix, Ints, Lines, ObservedOps, Price, constant

from ..shared._examples import observed, op, two_steps
from ..shared._words import count, plural
from ._equivalent import Equivalent, rows_of, worth

CONFIRMED = "measured pair on a CPU: nearest neighbours by argsort against topk"

# What topk took of a sort's time on one core of a CPU, least and most: 32 to 100,000 elements in one row and in many.
# (most of the elements that are read, shares); of more than a quarter topk gains little, or loses.
_LEFT = (
    (1 / 64, constant("topk.of_64th").range),
    (1 / 32, constant("topk.of_32nd").range),
    (1 / 8, constant("topk.of_8th").range),
    (1 / 4, constant("topk.of_quarter").range),
)
# Of fewer elements, or in a call of some microseconds, both take their time whatever the number that is read.
_FEW, _LEFT_OF_FEW = 100, constant("topk.of_few").range
_LEFT_OF_CALL = constant("topk.of_short_call").range


class _Sort(Struct, frozen=True):
    """A sort of which a part is read. rows: where it stands in the profiled steps; read, of: elements."""

    rows: Ints
    read: int
    of: int


_HOW = "the sorts, minus the largest and smallest share of a sort's time that topk took on a CPU for the same part"


def check(
    price: Price,
    lines: Lines | None,
    seen: ObservedOps,
    *,
    min_share: float = 0.02,  # one call to change; below 2 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    took_ns, steps = price.ops.events.dur_ns, price.ops.steps.count
    found = sorted(_sorts(seen), key=lambda one: -int(took_ns[one.rows].sum()))
    if not found:
        return
    parts = []
    for sort in found:
        least, most = _left(sort, took_ns[sort.rows].mean() <= 1e3 * price.added.recorded_calls_us("op_calls.sort"))
        parts.append((sort.rows, 1 - most, 1 - least))
    one = Equivalent(parts=tuple(parts), how=_HOW, claims=("forward", "other_ops"), timed_on_device=False)
    if known := worth(price, lines, one, min_share):
        largest, sorts = found[0], sum(len(one.rows) for one in found) / steps
        yield known.finding(
            f"{plural(round(sorts, 1), 'sort')} a step{known.at} of {count(largest.of)} elements "
            f"of which only {count(largest.read)} are read: {known.spent}.",
            {"sorts": sorts, "elements_read": largest.read, "elements_sorted": largest.of, "spent_us": known.spent_us},
            Fix(
                f"Use `topk({largest.read})` instead of a full sort",
                "numerics",
                f"index = distance.argsort(dim=-1)[..., :{largest.read}]",
                f"index = distance.topk({largest.read}, dim=-1, largest=False).indices",
            ),
        )


def _sorts(observed_ops: ObservedOps) -> Iterator[_Sort]:
    for place, read, of in observed_ops.seen.sorted:
        rows = rows_of(*(int(at[place]) for at in observed_ops.places if at[place] >= 0))
        if len(rows) and read <= _LEFT[-1][0] * of:
            yield _Sort(rows, read, of)


def _left(one: _Sort, short: bool) -> tuple[float, float]:
    """(least, most) share of a sort's time that topk takes. short: it takes no longer than a call does."""
    if one.of < _FEW:
        return _LEFT_OF_FEW
    least, most = next(ends for part, ends in _LEFT if one.read <= part * one.of)
    if short:
        return max(least, _LEFT_OF_CALL[0]), max(most, _LEFT_OF_CALL[1])
    return least, most


# Layers (F), the sort (S), the part of it (P), what reads it (R), the backward pass (B).
_LANE = "[F    ][S        ][P][R  ][B   ]"
_OPS: dict[str, Any] = {
    "S": op("argsort", [6, 192, 192]),
    "P": op("slice", [6, 192, 192]),
    "R": op("index", [6, 192, 3]),
}
_DRAWN, _TOPK = two_steps(_LANE, **_OPS), two_steps(_LANE, **(_OPS | {"S": op("topk", [6, 192, 192])}))
_ON_GPU = _OPS | {"S": op("argsort", [6, 192, 192], launches="kernel")}


def _seen(*parts: tuple[int, int, int]) -> dict[str, Any]:
    return observed("linear argsort slice index", [[], [1], [1], [2]], sorted=[list(one) for one in parts])


EXAMPLES = [
    Example(
        "eight nearest of 192 points",
        _DRAWN,
        saves_us=(650, 1050),
        facts=_seen((1, 8, 192)),
        says=("1 sort a step", "192 elements", "only 8 are read"),
    ),
    Example("the same of 32 points: either takes long", _DRAWN, saves_us=(100, 600), facts=_seen((1, 8, 32))),
    Example(
        "the same beside a GPU",
        two_steps(_LANE, gpu="      [K        ]", **_ON_GPU),
        saves_us=(0, 1200),
        facts=_seen((1, 8, 192)),
    ),
    Example("most of the elements are read", _DRAWN, None, _seen((1, 150, 192)), near_miss=True),
    Example("all of the order is read", _DRAWN, None, _seen(), near_miss=True),
    Example("topk", _TOPK, None, observed("linear topk", [[], [1]])),
]
