"""Gradients of `x[:, i]`, taken one by one, are each as large as `x`.

## What it looks at
Nodes of the backward pass that each take one part of a tensor of the same size (`x[:, i]`, `x[:, a:b]`): the zeros that
they write, as many as the whole tensor has numbers, and the sums that join such gradients. Parts that overlap do not
count, nor does a tensor of which one part is taken. What `nn.MultiheadAttention` takes by itself is left out.

## Why it costs time
The gradient of a part is a tensor of the whole size, zero elsewhere. A loop over `n` parts writes `n` of these and adds
them: time that grows with the square of `n`. `unbind` and `split` give all parts at once, and their backward pass joins
the gradients of the parts once.

## How to fix it
`parts = x.unbind(1)` before the loop and `parts[i]` in it; `x.split(size, 1)` or `x.chunk(n, 1)` for slices.

## When to leave it
A loop that takes few of many parts: `unbind` and `split` cost some time for each.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from msgspec import Struct

from advisor.api import (
    AUTOGRAD_NODE,
    SYNC,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    Ints,
    Lines,
    Missing,
    ModuleCalls,
    Price,
    StepOps,
    constant,
)

from ...shared._examples import op, two_steps
from ...shared._places import forward_rows
from ...shared._words import often
from .._equivalent import Equivalent, worth

_PARTS = ("aten::select_backward", "aten::slice_backward")
# Of these zeros and sums the least that `unbind` saved on a CPU; in most shapes it saved more than they took.
_LEAST = constant("share.gradients_of_parts").value
# Layers of torch that take parts of what one product made for queries, keys and values.
_LAYERS = frozenset(("MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer"))
_HOW = (
    "high: all zeros and sums of the whole size; low: on a CPU the least part of them that was saved in measurements; "
    "the copies of the parts stay, as joining them takes as long"
)
_FIX = Fix(
    "Take all parts at once, before the loop",
    "exact",
    "for i in range(x.shape[1]):\n    h = a * h + x[:, i]",
    "for part in x.unbind(1):  # of slices: x.split(size, 1)\n    h = a * h + part",
)


def check(
    price: Price,
    lines: Lines | None,
    modules: ModuleCalls | None,
    *,
    min_share: float = 0.02,  # one call before the loop, with the same result
) -> Iterator[Finding]:
    ops = price.ops
    rows = np.flatnonzero(ops.events.exactly(*_PARTS) & ops.links.inside)
    known = rows[ops.events.values[rows] >= 0]
    if len(rows) and not len(known):
        raise Missing("which part of a tensor a gradient is of is not recorded; capture with `record_shapes=True`")
    for part in _parts(ops, known):
        # The line that takes the part, where its op carries the number of its node; else the one that asked for it.
        forward = forward_rows(ops.trace, part.nodes)
        if _in_torch(ops, modules, forward):
            continue
        one = Equivalent(
            parts=((part.needless, 1.0 if price.on_device else _LEAST, 1.0),),
            how=_HOW,
            shown=forward if len(forward) else part.nodes,
        )
        if found := worth(price, lines, one, min_share):
            times = len(part.nodes) / ops.steps.count
            yield found.finding(
                f"{part.count} parts of a tensor of {list(part.size)} are taken one by one{found.at}: the backward "
                f"pass writes a gradient of the whole size for each, {often(times)}, and adds them: {found.spent}.",
                {"parts": part.count, "gradients": times, "needless_us": found.spent_us},
                _FIX,
            )


def _in_torch(ops: StepOps, modules: ModuleCalls | None, rows: Ints) -> bool:
    """Whether a layer of torch takes most of the parts: nobody can write that otherwise."""
    if modules is None or not len(rows):
        return False
    ran = modules.chain_at(ops.events.start_ns[rows])
    layers = [modules.kinds[modules.chains[chain][-1]] for chain in ran[ran >= 0].tolist()]
    return 2 * sum(kind.rpartition(".")[2] in _LAYERS for kind in layers) > len(rows)


class _Part(Struct, frozen=True, eq=False):
    """Parts that are taken of tensors of one size, along one dimension, and do not overlap.

    count     how many different ones
    nodes     nodes of the backward pass, one for each part of each tensor
    needless  ops that write zeros of the whole size, and that add such gradients
    """

    size: tuple[int, ...]
    count: int
    nodes: Ints
    needless: Ints


def _parts(ops: StepOps, rows: Ints) -> Iterator[_Part]:
    events, parent = ops.events, ops.nesting.parent
    of: dict[tuple[tuple[int, ...], int], list[tuple[int, tuple[int, int]]]] = defaultdict(list)
    for row in rows.tolist():
        taken = _taken(events.values_table[int(events.values[row])])
        if taken is not None:
            size, dim, span = taken
            of[size, dim].append((row, span))
    node = ops.nesting.ancestor(events.named(AUTOGRAD_NODE))
    zeros = events.exactly("aten::zeros", "aten::new_zeros") & (parent >= 0)
    sums = events.exactly("aten::add", "aten::add_") & (parent >= 0)
    for (size, _), taken_rows in of.items():
        mine = np.array([row for row, _ in taken_rows], np.int64)
        nodes = np.unique(node[mine])
        added = np.flatnonzero(sums & np.isin(parent, nodes))
        spans = sorted({span for _, span in taken_rows})
        # The gradient of one part is added to others only where the tensor is used more than once.
        if len(spans) > 1 and 2 * len(added) >= len(nodes) and not _overlap(spans) and nodes[0] >= 0:
            yield _Part(size, len(spans), nodes, np.append(np.flatnonzero(zeros & np.isin(parent, mine)), added))


def _taken(values: str) -> tuple[tuple[int, ...], int, tuple[int, int]] | None:
    """The size of the whole tensor, the dimension, and (begin, end) of the part; None where that is not told."""
    try:
        given = json.loads(values)
        size, dim, begin, *rest = (json.loads(str(one)) for one in given[1:])
        dim, length = dim % len(size), size[dim]
        end = begin % length + 1 if not rest else rest[0]
        if rest and rest[-1] != 1:
            return None
        return tuple(size), dim, (begin % length, min(end if end >= 0 else end + length, length))
    except (ValueError, TypeError, IndexError, ZeroDivisionError):
        return None


def _overlap(spans: list[tuple[int, int]]) -> bool:
    return any(first[1] > second[0] for first, second in pairwise(spans))


def _drawn(*places: int, op_name: str = "select", adds: bool = True) -> Drawing:
    """Nodes (N) that each write zeros (Z), copy a part (C) and add it (A), and another (B)."""
    given = [["", "[64, 4, 4096]", "1", str(at), *([str(at + 2), "1"] if op_name == "slice" else [])] for at in places]
    one = {
        f"{letter}": Ev(f"aten::{op_name}_backward", args={"Concrete Inputs": values}, dims=[[64, 4096]])
        for letter, values in zip("PQRS", given, strict=False)
    }
    letters = list(one)
    return two_steps(
        "[F ]" + "".join("[N       ]" for _ in letters) + "[B ][Y  ]",
        "    " + "".join(f"[{letter}    ]" + ("[A]" if adds else "   ") for letter in letters),
        "    " + "".join("[Z ][C]   " for _ in letters),
        gpu="  [K ]" + "".join("[E ][H]" + ("[G]" if adds else "   ") for _ in letters) + "[K ]",
        F=op("linear", [64, 4096], [4096, 4096], launches="kernel"),
        N=Ev(f"{AUTOGRAD_NODE}: {op_name.title()}Backward0"),
        **one,
        Z=Ev("aten::zeros", launches="kernel"),
        C=Ev("aten::copy_", launches="kernel"),
        **({"A": Ev("aten::add_", launches="kernel")} if adds else {}),
        B=Ev(f"{AUTOGRAD_NODE}: AddmmBackward0", launches="kernel"),
        E=Ev("FillFunctor", "kernel"),
        H=Ev("copy_kernel", "kernel"),
        **({"G": Ev("CUDAFunctor_add", "kernel")} if adds else {}),
        Y=SYNC,
    )


EXAMPLES = [
    Example("four parts, one by one", _drawn(0, 1, 2, 3), saves_us=(2600, 3000), says=("4 parts", "[64, 4, 4096]")),
    Example("slices that do not overlap", _drawn(0, 2, op_name="slice"), saves_us=(1300, 1500), says=("2 parts",)),
    Example(
        "all parts at once, by unbind",
        two_steps(
            "[F ][N       ][B ][Y  ]",
            "    [S    ]",
            gpu="  [K ][E ]      [K ]",
            F=op("linear", [64, 4096], [4096, 4096], launches="kernel"),
            N=Ev(f"{AUTOGRAD_NODE}: UnbindBackward0"),
            S=Ev("aten::stack", launches="kernel"),
            B=Ev(f"{AUTOGRAD_NODE}: AddmmBackward0", launches="kernel"),
            Y=SYNC,
        ),
    ),
    Example("slices that overlap: no split gives them", _drawn(0, 1, op_name="slice"), near_miss=True),
    Example("the same part of each layer's output", _drawn(0, 0, 0, 0), near_miss=True),
    Example("each of a tensor of its own", _drawn(0, 1, adds=False), near_miss=True),
]
