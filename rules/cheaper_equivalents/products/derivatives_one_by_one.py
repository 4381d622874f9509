"""Rows of a Jacobian or a Hessian are differentiated one by one.

## What it looks at
Four or more backward passes of one step that go through the same nodes of one graph, store no gradients, and begin at
another part of one tensor each: `torch.autograd.grad(gradient[:, k].sum(), x)` for each k, a pass for each sample's
loss, rows of a unit matrix as `grad_outputs`, and `torch.autograd.functional.jacobian` and `hessian`, which do the same
inside. With `create_graph=True` what the passes record is gone through later, and counts as well. Not reported: passes
that begin with what an earlier one gave, as a power iteration does, passes through graphs of their own, and passes
whose time is arithmetic, which stays.

## Why it costs time
Each pass calls every node of the graph, and every op in it, for one row. A batched pass calls them once for all rows;
a call of its takes longer, as each op finds its batched form, and on small tensors calls are most of the time. No
saving is promised: a model of it (the calls of one pass, the arithmetic of all) gave 46 to 68 % for a Laplacian of six
coordinates that saved 14 % (CPU time, a busy machine).

## How to fix it
`torch.autograd.grad(y, x, rows, is_grads_batched=True)`, where `rows` holds a gradient of y for each pass. Or
`torch.func.vmap(torch.func.jacrev(f))(x)`, `torch.func.vmap(torch.func.hessian(f))(x)`;
`torch.autograd.functional.jacobian(f, x, vectorize=True)`. For the gradients of each sample
`torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(weights, x, y)`, which also leaves out the other samples.

## When to leave it
Where memory is short: all rows are held at once. Where an op or a custom `autograd.Function` of the graph has no
batched form, and where a row decides whether the next one is needed. Results differ by rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    BackwardPasses,
    CallSites,
    Drawing,
    Example,
    Finding,
    Fix,
    Ints,
    LineCosts,
    Lines,
    Price,
    Source,
    loop_around,
)

from ...shared._examples import node, op, two_steps
from ...shared._places import first_line, place
from ...shared._words import count
from .._equivalent import Equivalent, worth
from ._joined_work import joined_us, spans_of
from ._own_parts import read_apart
from ._rows_of_passes import RowsOfPasses, rows_of_passes

_HOW = "what one op over the rows of all passes takes beside its arithmetic is not known"
_FIX = Fix(
    "Differentiate all rows in one batched pass",
    "numerics",
    "rows = [torch.autograd.grad(y[:, k].sum(), x, create_graph=True)[0] for k in range(y.shape[1])]\n"
    "jacobian = torch.stack(rows, 1)",
    "seeds = torch.eye(y.shape[1], device=y.device)[:, None].expand(-1, len(y), -1)\n"
    "rows = torch.autograd.grad(y, x, seeds, create_graph=True, is_grads_batched=True)[0]\n"
    "jacobian = rows.transpose(0, 1)  # of each sample's loss: torch.func.vmap(torch.func.grad(loss), (None, 0, 0))",
)
# Where arithmetic is more of the passes than this, one batched pass has most of it as well.
_MOSTLY_WORK = 0.5


def check(
    price: Price,
    backward: BackwardPasses,
    lines: Lines | None,
    sites: CallSites,
    costs: LineCosts | None,
    *,
    min_passes: int = 4,  # a batched pass takes longer than one of them: of fewer little goes
    min_share: float = 0.03,  # some lines to change; below 3 % of the step it is not worth the memory
) -> Iterator[Finding]:
    if price.on_device or price.ops.device.kind != "none":
        return  # not measured there: kernels of one stream may overlap with launches
    across = {batch * outputs for batch, outputs in read_apart(price)}
    found = backward.seen(lambda passes: list(rows_of_passes(price.ops, passes, min_passes)))
    groups = [one for one in found if one.passes not in across]  # those are jacobian-across-batch's
    by_place: dict[tuple[Source, ...], list[RowsOfPasses]] = {}
    for one in groups:
        by_place.setdefault(_where(lines, sites, costs, one), []).append(one)
    for where, mine in by_place.items():
        yield from _finding(price, lines, where, mine, min_share)


def _finding(
    price: Price, lines: Lines | None, where: tuple[Source, ...], groups: Sequence[RowsOfPasses], min_share: float
) -> Iterator[Finding]:
    passes = max(one.passes for one in groups)
    nodes, every = (np.unique(np.concatenate(rows)) for rows in zip(*map(_rows, groups), strict=True))
    work_us = joined_us(price, nodes, few_samples=False)
    one = Equivalent(
        parts=((spans_of(price.ops, every), 1.0, 1.0),),
        how=_HOW,
        claims=("forward", "backward", "other_ops", "host"),
        instead_us=None,
        shown=np.concatenate([one.firsts for one in groups]),
        at_most="medium",
    )
    known = worth(price, lines, one, min_share)
    if known is None or work_us[1] > _MOSTLY_WORK * price.scale.scaled(known.spent_us):
        return
    shared = max(one.shared for one in groups)
    finding = known.finding(
        f"{count(passes)} backward passes go through the same {count(shared)} nodes of a graph one after the "
        f"other{place(where[0] if where else known.where)}, each for another row of the derivatives: {known.spent}, "
        "with what they record.",
        {"passes": passes, "shared_nodes": shared, "spent_us": known.spent_us, "work_us": work_us[1]},
        _FIX,
    )
    yield replace(finding, where=tuple(dict.fromkeys((*where, *finding.where))))


def _rows(one: RowsOfPasses) -> tuple[Ints, Ints]:
    """(engine calls whose arithmetic stays, all of the passes)."""
    return np.setdiff1d(one.nodes, one.picks), np.concatenate((one.nodes, one.lead))


def _where(lines: Lines | None, sites: CallSites, costs: LineCosts | None, one: RowsOfPasses) -> tuple[Source, ...]:
    """The line that asks for the passes, the statement of the loop around it, and what calls its function."""
    line = first_line(lines, one.firsts)
    if line is None:
        return ()
    around = loop_around(costs, line) if costs is not None else None
    stack = next((found for row in one.firsts.tolist() if (found := sites.op_stack(row))), None) or ()
    caller = next((sites.sources[at] for at in stack[1:] if sites.sources[at].function != line.function), None)
    return tuple(dict.fromkeys(each for each in (line, around, caller) if each is not None))


_SHARED = (3, 2, 1)
_LEADS = {"same": "ones_like", "scaled": "mul"}


def _drawn(kind: str = "picked", passes: int = 4, *, most: bool = False) -> Drawing:
    """Passes through a derivative of three nodes, with a product (M) in each.

    kind: "picked", "scaled" (multiplied by a tensor), "apart" (a graph for each), "same" (one output, ones for each),
    "unit" (rows of a unit matrix), "results" (an output for each);  most: the products take most of it.
    """
    rows, width = (4096, 1024) if most else (512, 192)
    of_products: dict[str, Any] = {"dtypes": ["float", "float"]}
    ops: dict[str, Any] = {
        "F": op("linear", [rows, width], [width, width], number=1),
        "M": replace(op("mm", [rows, width], [width, width]), **of_products),
    }
    calls, work = "[F    ]", "       "
    for at in range(passes):
        lead, own, number = chr(ord("a") + at), chr(ord("P") + at), 10 + at
        if kind in ("same", "unit"):
            ops[lead] = op(_LEADS.get(kind, "select"), [passes, passes])
            calls, work = calls + f"[{lead}]", work + "   "
        elif kind != "results":
            ops[lead] = op(_LEADS.get(kind, "select"), [rows, width], number=number)
            ops[own] = node(number, "MulBackward0" if kind == "scaled" else "SelectBackward0")
            calls, work = calls + f"[{lead}][{own}]", work + 6 * " "
        for shared in _SHARED:
            letter = chr(0x400 + 3 * at + shared) if kind == "apart" else chr(ord("G") + shared)
            name = "UnbindBackward0" if (kind, shared) == ("results", _SHARED[0]) else "AddmmBackward0"
            ops[letter] = node(shared if kind != "apart" else 100 * (at + 1) + shared, name)
            calls, work = calls + f"[{letter}    ]", work + ("[M    ]" if most else "  [M]  ")
    return two_steps(calls + "[O]", work + "   ", **ops)


EXAMPLES = [
    Example(
        "four columns of a gradient",
        _drawn(),
        saves_us="unknown",
        says=("4 backward passes go through the same 3 nodes", "each for another row"),
    ),
    Example("rows of a unit matrix", _drawn("unit"), saves_us="unknown", says=("4 backward passes",)),
    Example("the loss of each sample", _drawn("results"), saves_us="unknown", says=("4 backward passes",)),
    Example("three rows", _drawn(passes=3), near_miss=True),
    Example("a graph of its own for each row", _drawn("apart"), near_miss=True),
    Example("derivatives of one output by several inputs", _drawn("same"), near_miss=True),
    Example("each row is multiplied by what an earlier one may give", _drawn("scaled"), near_miss=True),
    Example("losses whose time is arithmetic", _drawn("results", most=True), near_miss=True),
    Example("one batched pass", two_steps("[F    ][D    ][B    ][O]", D=node(1))),
]
