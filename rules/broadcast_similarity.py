"""All pairs are compared by broadcasting, where one product does it.

## What it looks at
Tensors that two others are broadcast to (`x[:, None] - y[None]`, `x[:, None] * y[None]`) and that nothing reads but a
sum over the numbers of each pair: similarities, cosines, squared, Euclidean and absolute distances of all pairs, by
hand or by `cosine_similarity` and `pairwise_distance`. That nothing else reads them `advisor run` sees in a step that
it observes; the last two are told by their shapes alone.

## Why it costs time
For 128 rows of 64 numbers, compared with each other, every op on the way reads and writes a million numbers, and the
backward pass does it again for each of them; 16 thousand are wanted. A product of two matrices makes these without any
tensor of that size, in an order that suits the caches.

## How to fix it
`x @ y.T` for products, `F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).T` for cosines, `torch.cdist(x, y)` for
distances.

## When to leave it
Where the differences themselves are needed, as for directions. Sums come in another order, so results differ in the
last digits; distances of rows that are nearly equal lose more of them
(`compute_mode="donot_use_mm_for_euclid_dist"` keeps them, and takes longer).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from advisor.api import (
    BACKWARD,
    FORWARD,
    GEMM,
    Breakdown,
    Ev,
    Events,
    Example,
    Finding,
    Fix,
    Lines,
    Links,
    Nesting,
    Saving,
    Scale,
    Steps,
    Trace,
    Undilated,
    draw,
)

from ._backward_passes import inside
from ._costs import launched_us, less_by, taken_us
from ._enlarged import broadcast, originals, outermost
from ._operands import dims_of, nodes_of, sizes
from ._places import first_line, place
from ._readers import Readers
from ._words import count, percent, time

CONFIRMED = "measured pair on a CPU: cosines of all pairs of a batch by broadcasting against a product of matrices"

Ints = npt.NDArray[np.int64]
Shape = tuple[int, ...]
Kind = Literal["cosine", "product", "square", "absolute", "norm"]
# Ops that compare all pairs by themselves.
_WHOLE: dict[str, Kind] = {"aten::cosine_similarity": "cosine", "aten::pairwise_distance": "norm"}
# What makes a number for each number of each pair, and what may follow before the sum.
_FIRST = frozenset(("aten::sub", "aten::mul", "aten::mse_loss", "aten::l1_loss"))
_BY_ITSELF: dict[str, Kind] = {"aten::mul": "product", "aten::mse_loss": "square", "aten::l1_loss": "absolute"}
_SECOND: dict[str, Kind] = {"aten::pow": "square", "aten::square": "square", "aten::mul": "square"}
_SECOND |= {"aten::abs": "absolute"}
_SUMS = frozenset(f"aten::{name}" for name in ("sum", "mean", "nansum"))
_NORMS = frozenset(f"aten::{name}" for name in ("norm", "linalg_vector_norm", "linalg_norm", "frobenius_norm"))
# Tensors of fewer numbers take no longer than the calls.
_LEAST_NUMBERS = 4096
# What comes instead, as measured on a CPU for seven sizes (64 to 1,000 rows, 2 to 128 numbers each): calls, and so many
# times what an elementwise op takes for the table of pairs; with the backward pass, and without.
_CALLS_US, _CALLS_ALONE_US = (30.0, 150.0), (5.0, 40.0)
_PASSES, _PASSES_ALONE = (1.0, 6.0), (0.5, 1.5)
# Absolute distances are no product: of a pass over the numbers of all pairs.
_ABSOLUTE = (0.4, 7.0)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """One comparison. rows: the forward ops that go; shape: what is broadcast to; width: numbers of each pair."""

    kind: Kind
    rows: tuple[int, ...]
    shape: Shape
    pairs: int
    width: int


def check(
    trace: Trace,
    steps: Steps,
    breakdown: Breakdown,
    scale: Scale,
    nesting: Nesting,
    links: Links,
    undilated: Undilated | None,
    lines: Lines | None,
    readers: Readers | None,
    *,
    min_share: float = 0.03,  # one line to change; below 3 % of the step the gain drowns in the noise between steps
) -> Iterator[Finding]:
    events = trace.events
    ops = outermost(trace, steps, nesting, links)
    found = list(_found(events, ops, readers))
    if not found:
        return
    backward = [nodes_of(events, ops, np.array(one.rows, np.int64)) for one in found]
    rows = np.unique(np.concatenate([*(np.array(one.rows, np.int64) for one in found), *backward]))
    if breakdown.on_device:
        claims: tuple[str, ...] = ("compute",)
        spent_us = launched_us(trace, steps, nesting, links, rows)
        saving = scale.saving(
            0.0, spent_us, "low: nothing, since no device has been timed; high: all of the comparisons"
        )
    else:
        claims = ("forward", "backward", "other_ops")
        spent_us = steps.per_step_us(float(events.dur_ns[rows].sum()))
        low_us, high_us = taken_us(trace, steps, scale, undilated, rows)
        how = "these ops and their backward pass, less what a product of matrices takes beside an elementwise op, as "
        how += "measured for seven sizes on a CPU"
        instead = [_instead_us(events, one, bool(len(nodes))) for one, nodes in zip(found, backward, strict=True)]
        least_us, most_us = (scale.factor * sum(ends) / steps.count for ends in zip(*instead, strict=True))
        saving = less_by(Saving(low_us, high_us, "modelled", how), (least_us, most_us))
    if saving.high_us < min_share * scale.step_us:
        return
    largest = max(found, key=lambda one: math.prod(one.shape))
    firsts = [one.rows[0] for one in sorted(found, key=lambda one: -math.prod(one.shape))]
    where = first_line(lines, np.array(firsts, np.int64)) if lines else None
    yield Finding(
        message=(
            f"{count(largest.pairs)} pairs of {count(largest.width)} numbers are compared{place(where)} by way of a "
            f"tensor of {count(math.prod(largest.shape))}: {time(scale.scaled(spent_us))} of each step "
            f"({percent(spent_us / steps.step_us)}), backward pass included."
        ),
        saving=saving,
        where=(where,) if where else (),
        facts={"comparisons": len(found) / steps.count, "numbers": math.prod(largest.shape), "spent_us": spent_us},
        fix=_FIXES[largest.kind],
        claims=claims,
        at_most="low" if breakdown.on_device else "high",  # what a device takes for the product nobody has timed
    )


_DISTANCE = "distance = torch.cdist(x, y)"
_FIXES: dict[Kind, Fix] = {
    "cosine": Fix(
        "Normalise, then multiply",
        "numerics",
        "similarity = F.cosine_similarity(x[:, None], y[None], dim=2)",
        "similarity = F.normalize(x, dim=1) @ F.normalize(y, dim=1).T",
    ),
    "product": Fix("Multiply as matrices", "numerics", "scores = (x[:, None] * y[None]).sum(-1)", "scores = x @ y.T"),
    "square": Fix(
        "Let cdist compute the distances",
        "numerics",
        "distance = (x[:, None] - y[None]).pow(2).sum(-1)",
        "distance = torch.cdist(x, y).pow(2)",
    ),
    "absolute": Fix(
        "Let cdist compute the distances",
        "numerics",
        "distance = (x[:, None] - y[None]).abs().sum(-1)",
        "distance = torch.cdist(x, y, p=1)",
    ),
    "norm": Fix(
        "Let cdist compute the distances", "numerics", "distance = (x[:, None] - y[None]).norm(dim=-1)", _DISTANCE
    ),
}


def _found(events: Events, ops: Ints, readers: Readers | None) -> Iterator[_Pairs]:
    """The comparisons of all pairs among these ops."""
    wanted = events.exactly(*_WHOLE, *(_FIRST if readers else ()))[ops]
    for at in np.flatnonzero(wanted).tolist():
        row = int(ops[at])
        left, right = originals(events, ops[: at + 1], 2)
        shape = broadcast(left, right)
        kinds = _dimensions(left, right, shape) if math.prod(shape) >= _LEAST_NUMBERS else None
        if kinds is None:
            continue
        if (kind := _WHOLE.get(events.text(row))) is not None:
            yield _Pairs(kind, (row,), shape, math.prod(shape) // kinds[-1], kinds[-1])
        elif readers is not None and (chain := _chain(events, readers, row, shape)) is not None:
            kind, rows = chain
            width = _width(events, readers, rows[-1], shape, kinds)
            if width:
                yield _Pairs(kind, rows, shape, math.prod(shape) // width, width)


def _dimensions(left: Shape, right: Shape, shape: Shape) -> list[int] | None:
    """Sizes of the dimensions that both have, the likeliest to be summed last; None where these are not all pairs."""
    ours, theirs = _padded(left, len(shape)), _padded(right, len(shape))
    pairs = list(zip(ours, theirs, strict=True))
    if not any(a > 1 == b for a, b in pairs) or not any(b > 1 == a for a, b in pairs):
        return None
    return [a for a, b in pairs if a == b > 1] or None


def _padded(shape: Shape, length: int) -> Shape:
    return (1,) * (length - len(shape)) + shape


def _chain(events: Events, readers: Readers, row: int, shape: Shape) -> tuple[Kind, tuple[int, ...]] | None:
    """What is made of the numbers, and the ops from the first to the sum; None where something else reads them."""
    kind = _BY_ITSELF.get(events.text(row))
    rows = [row]
    for _ in range(2):
        behind = readers.of(rows[-1])
        name = events.text(behind[0]) if len(behind) == 1 else ""
        if kind is None and name in _NORMS:
            return "norm", (*rows, *behind)
        if kind is not None and name in _SUMS:
            return kind, (*rows, *behind)
        if kind is not None or name not in _SECOND:
            return None
        dims = dims_of(events, behind[0])
        if name == "aten::mul" and not sizes(dims, 0) == sizes(dims, 1) == shape:
            return None
        kind = _SECOND[name]
        rows += behind
    return None


def _width(events: Events, readers: Readers, row: int, shape: Shape, shared: Sequence[int]) -> int:
    """How many numbers of each pair the sum takes together, by the shape of what is read of it; 0 where not all."""
    seen = {
        sizes(dims, at)
        for reader in readers.looks(row)
        for dims in [dims_of(events, reader)]
        for at in range(min(len(dims), 3))
    }
    for at in reversed([at for at, size in enumerate(shape) if size in shared]):
        without, kept = (*shape[:at], *shape[at + 1 :]), (*shape[:at], 1, *shape[at + 1 :])
        if without in seen or kept in seen:
            return shape[at]
    return 0


def _instead_us(events: Events, one: _Pairs, trained: bool) -> tuple[float, float]:
    """(least, most) that a product takes in its place, profiled µs."""
    first = one.rows[0]
    took = float(events.dur_ns[first])
    if events.text(first) in _WHOLE:
        # Ops of the full size within it: the quickest of them reads and writes that many numbers.
        whole = [
            int(events.dur_ns[row])
            for row in inside(events, first)
            if one.shape in (sizes(dims_of(events, row), 0), sizes(dims_of(events, row), 1))
            and events.text(row) in ("aten::mul", "aten::div", "aten::div_", "aten::sub")
        ]
        took = float(min(whole, default=took / 5))
    if one.kind == "absolute":
        calls, passes, took = _CALLS_ALONE_US, _ABSOLUTE, took * one.width
    elif trained:
        calls, passes = _CALLS_US, _PASSES
    else:
        calls, passes = _CALLS_ALONE_US, _PASSES_ALONE
    ends = [call + each * took / one.width / 1e3 for call, each in zip(calls, passes, strict=True)]
    return ends[0], ends[1]


def _op(name: str, *dims: list[int], **args: Any) -> Ev:
    return Ev(f"aten::{name}", dims=[*dims], **args)


_LEFT, _RIGHT, _BOTH, _RESULT = [128, 1, 64], [1, 128, 64], [128, 128, 64], [128, 128]
# Layers (F), the comparison (A, P, S), what reads it (R), the backward pass (B).
_STEPS = """
    step   [1                                     ][2                                     ]
    cpu    [F][A       ][P     ][S     ][R][B   ]   [F][A       ][P     ][S     ][R][B   ]
    """
_OPS: dict[str, Any] = {
    "F": FORWARD,
    "A": _op("sub", _LEFT, _RIGHT),
    "P": _op("pow", _BOTH),
    "S": _op("sum", _BOTH),
    "R": _op("cross_entropy_loss", _RESULT),
    "B": BACKWARD,
}


def _seen(*names: str, waits: list[list[int]]) -> dict[str, Any]:
    known = [f"aten::{name}" for name in names]
    index = list(dict.fromkeys(known))
    return {"reused": {"names": index, "ops": [index.index(name) for name in known], "waits": waits}}


_DISTANCES = _seen("linear", "sub", "pow", "sum", "cross_entropy_loss", waits=[[], [1], [1], [1], [1]])
_WHOLE_OPS = {"P": _op("cosine_similarity", _LEFT, _RIGHT), "A": FORWARD, "S": FORWARD}

EXAMPLES = [
    Example(
        "squared distances of all pairs",
        draw(_STEPS, us=100, **_OPS),
        facts=_DISTANCES,
        saves_us=(2000, 2700),
        says=("16,384 pairs of 64 numbers", "a tensor of 1,048,576"),
    ),
    Example("cosines, of a trace alone", draw(_STEPS, us=100, **(_OPS | _WHOLE_OPS)), saves_us=(600, 900)),
    Example(
        "the same beside a GPU",
        draw(
            """
            step   [1                                     ][2                                     ]
            cpu    [F][P     ][B   ]                        [F][P     ][B   ]
            gpu 7    [K         ][L            ]              [K         ][L            ]
            """,
            us=100,
            F=Ev(FORWARD.name, launches="kernel"),
            P=_op("cosine_similarity", _LEFT, _RIGHT, launches="kernel"),
            B=BACKWARD,
            K=GEMM,
            L="reduce_kernel",
        ),
        saves_us=(0, 800),
    ),
    Example(
        "the differences are read once more, as directions",
        draw(_STEPS, us=100, **(_OPS | {"R": _op("mul", _BOTH, _RESULT)})),
        facts=_seen("linear", "sub", "pow", "sum", "mul", waits=[[], [1], [1], [1], [1, 3]]),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "each row is compared with its own partner",
        draw(_STEPS, us=100, **(_OPS | {"A": _op("sub", [16384, 64], [16384, 64])})),
        facts=_DISTANCES,
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "weights of channels: nothing is compared with all",
        draw(_STEPS, us=100, **(_OPS | {"A": _op("mul", _BOTH, [64])})),
        facts=_seen("linear", "mul", "pow", "sum", "cross_entropy_loss", waits=[[], [1], [1], [1], [1]]),
        saves_us=None,
        near_miss=True,
    ),
    Example("nobody looked what reads them", draw(_STEPS, us=100, **_OPS), saves_us=None, near_miss=True),
    Example("cdist", draw(_STEPS, us=100, **(_OPS | {"A": _op("cdist", [128, 64], [128, 64])})), saves_us=None),
]
