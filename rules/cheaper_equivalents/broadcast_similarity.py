"""All pairs are compared by broadcasting instead of one matrix multiplication.

## What it looks at
Ops that broadcast two tensors against each other (`x[:, None] - y[None]`, `x[:, None] * y[None]`) and whose result is
only summed over the elements of each pair: similarities, cosines, squared, Euclidean and absolute distances of all
pairs, written by hand or with `cosine_similarity` and `pairwise_distance`. That nothing else reads the result is
observed by `advisor run` in one step; the last two functions are recognized by their shapes alone.

## Why it costs time
For 128 rows of 64 numbers, compared with each other, every intermediate op reads and writes a million numbers, and the
backward pass does so again for each of them; 16 thousand are needed. A matrix multiplication computes these without any
tensor of that size, in an order that suits the caches.

## How to fix it
`x @ y.T` for dot products, `F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).T` for cosines, `torch.cdist(x, y)` for
distances.

## When to leave it
Where the differences themselves are needed, as for directions. Sums are computed in another order, so results differ in
the last digits; distances of rows that are nearly equal lose more of them
(`compute_mode="donot_use_mm_for_euclid_dist"` keeps them, and takes longer).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.api import (
    BACKWARD,
    FORWARD,
    GEMM,
    Ev,
    Example,
    Finding,
    Fix,
    Lines,
    Price,
    Readers,
    Scale,
    StepOps,
    Steps,
    draw,
    edits,
    nodes_of,
)

from ..shared._places import first_line, place
from ..shared._words import count, percent, time
from ._all_pairs import Kind, all_pairs, instead_us

CONFIRMED = "measured pair on a CPU: cosines of all pairs of a batch by broadcasting against a matrix multiplication"

Ints = npt.NDArray[np.int64]


def check(
    recorded: StepOps,
    steps: Steps,
    scale: Scale,
    price: Price,
    lines: Lines | None,
    readers: Readers | None,
    *,
    min_share: float = 0.03,  # one line to change; below 3 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    events, ops = recorded.events, recorded.outermost
    found = list(all_pairs(events, ops, readers))
    if not found:
        return
    backward = [nodes_of(events, ops, np.array(one.rows, np.int64)) for one in found]
    rows = np.unique(np.concatenate([*(np.array(one.rows, np.int64) for one in found), *backward]))
    claims, spent_us, gone = price.claims("forward", "backward", "other_ops"), price.spent_us(rows), edits.remove(rows)
    if price.on_device:
        how = "low: nothing, as it was not measured on a device; high: all of the comparisons"
        saving = price.saving([], [gone], claims, how)
    else:
        how = "these ops and their backward pass, minus a matrix multiplication, relative to an elementwise op as "
        how += "measured for seven sizes on a CPU"
        instead = [instead_us(events, one, bool(len(nodes))) for one, nodes in zip(found, backward, strict=True)]
        least_us, most_us = (scale.factor * sum(ends) / steps.count for ends in zip(*instead, strict=True))
        saving = price.divided([gone], [gone], claims, how, instead_us=(least_us, most_us))
    if saving.high_us < min_share * scale.step_us:
        return
    largest = max(found, key=lambda one: math.prod(one.shape))
    firsts = [one.rows[0] for one in sorted(found, key=lambda one: -math.prod(one.shape))]
    where = first_line(lines, np.array(firsts, np.int64)) if lines else None
    yield Finding(
        message=(
            f"{count(largest.pairs)} pairs of {count(largest.width)} numbers are compared{place(where)} through an "
            f"intermediate tensor of {count(math.prod(largest.shape))}: {time(scale.scaled(spent_us))} of each step "
            f"({percent(spent_us / steps.step_us)}), backward pass included."
        ),
        saving=saving,
        where=(where,) if where else (),
        facts={"comparisons": len(found) / steps.count, "numbers": math.prod(largest.shape), "spent_us": spent_us},
        fix=_FIXES[largest.kind],
        claims=claims,
        at_most="low" if price.on_device else "high",  # what a device takes for the product nobody has timed
    )


_DISTANCE = "distance = torch.cdist(x, y)"
_FIXES: dict[Kind, Fix] = {
    "cosine": Fix(
        "Normalize both, then multiply the matrices",
        "numerics",
        "similarity = F.cosine_similarity(x[:, None], y[None], dim=2)",
        "similarity = F.normalize(x, dim=1) @ F.normalize(y, dim=1).T",
    ),
    "product": Fix("Multiply the matrices", "numerics", "scores = (x[:, None] * y[None]).sum(-1)", "scores = x @ y.T"),
    "square": Fix(
        "Use `torch.cdist`",
        "numerics",
        "distance = (x[:, None] - y[None]).pow(2).sum(-1)",
        "distance = torch.cdist(x, y).pow(2)",
    ),
    "absolute": Fix(
        "Use `torch.cdist`",
        "numerics",
        "distance = (x[:, None] - y[None]).abs().sum(-1)",
        "distance = torch.cdist(x, y, p=1)",
    ),
    "norm": Fix("Use `torch.cdist`", "numerics", "distance = (x[:, None] - y[None]).norm(dim=-1)", _DISTANCE),
}


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
        says=("16,384 pairs of 64 numbers", "tensor of 1,048,576"),
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
