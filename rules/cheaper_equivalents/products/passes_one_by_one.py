"""Batches go through one network one by one where one pass would do.

## What it looks at
Forward passes of one network in one step, with the same weights and on tensors of the same shapes: anchors, positives
and negatives, both sides of a pair, real and generated pictures. `advisor run` observes in one step that they run the
same ops, that each op treats every sample by itself, and that no pass needs what another computed. Not reported:
networks with batch normalization or dropout in training, whose results depend on what a pass holds; passes of which
one records gradients and another does not; passes with a backward pass between them; passes whose time is arithmetic,
which stays.

## Why it costs time
Calling a module, dispatching its ops and running their nodes in the backward pass cost the same for a small batch as
for a larger one. Three passes pay that three times, and the gradients of each weight are added up across them.

## How to fix it
Join the batches, call the network once and split its output: `model(torch.cat([a, b, c])).chunk(3)`.

## When to leave it
Where the input of a pass depends on the output of an earlier one outside of torch, as the next state of an environment
does on an action.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    CallSites,
    Drawing,
    EqualLayers,
    EqualPasses,
    Example,
    Finding,
    Fix,
    LineCosts,
    Lines,
    LoopPlaces,
    ObservedOps,
    Price,
    Source,
    dims_of,
    sizes,
)

from ...shared._examples import node, observed, op, two_steps
from ...shared._places import place
from ...shared._words import count
from .._equivalent import Equivalent, worth
from ._equal_layers import layers_in_turn, loop_line

_HOW = (
    "of all these passes, with the Python between their ops and the backward pass, the calls of one stay, and the "
    "arithmetic of all: at the rate of this machine's products (convolutions: at most the recorded one), and at most "
    "what was recorded beyond bare calls; the batches are copied into one"
)
_FIX = Fix(
    "Join the batches, and call the network once for all of them",
    "numerics",
    "a = model(anchor)\np = model(positive)\nn = model(negative)",
    "a, p, n = model(torch.cat([anchor, positive, negative])).chunk(3)",
)
_NUMBER_BYTES = 4


def check(
    price: Price,
    seen: ObservedOps,
    lines: Lines | None,
    sites: CallSites,
    costs: LineCosts | None,
    loops: LoopPlaces | None,
    *,
    min_share: float = 0.05,  # inputs to join and outputs to split: a little more than a line to change
) -> Iterator[Finding]:
    if price.on_device or price.ops.device.kind != "none" or (loops and loops.calls):
        return  # not measured on devices; loops that call a model for each sample are samples-one-by-one's
    for passes in seen.seen.passes:
        yield from _finding(price, seen, lines, (sites, costs), passes, min_share)


def _finding(
    price: Price,
    seen: ObservedOps,
    lines: Lines | None,
    known: tuple[CallSites, LineCosts | None],
    passes: EqualPasses,
    min_share: float,
) -> Iterator[Finding]:
    group = _as_layers(passes)
    found = layers_in_turn(price, seen, [group], few_samples=True)
    if found is None or not _recorded_alike(price, seen, passes):
        return
    goes, number = 1 - found.kept, len(passes.starts)
    dims = dims_of(price.ops.events, int(found.rows[0]))
    inputs = [sizes(dims, at) for at in range(2)]
    given = inputs[price.ops.events.text(int(found.rows[0])) == "aten::embedding"]
    # Where other processes made the steps without the profiler the longer ones, arithmetic took longer in them, too.
    work_us = [max(price.scale.factor, 1.0) * us for us in found.work_us]
    copied = price.added.copied_us(_NUMBER_BYTES * number * float(np.prod(given)))
    one = Equivalent(
        parts=((found.spans, goes, goes),),
        how=_HOW,
        claims=("forward", "backward", "other_ops", "host"),
        instead_us=(goes * work_us[0] + copied[0], goes * work_us[1] + copied[1]),
        moves_as_much=True,
        shown=found.rows,
    )
    worthy = worth(price, lines, one, min_share)
    if worthy is None or worthy.saving is None or not worthy.saving.low_us:
        return  # arithmetic may be all of it, and stays
    where = _where(price, seen, *known, passes)
    at = place(next(iter(where), worthy.where))
    finding = worthy.finding(
        f"{count(number)} batches of {count(given[0])} go through the same {count(passes.ops)} ops one after the "
        f"other{at}, with the same weights, although none needs another's result: {worthy.spent}, backward pass "
        "included.",
        {"passes": number, "spent_us": worthy.spent_us, "work_us": found.work_us[1], "input": list(given)},
        _FIX,
    )
    yield replace(finding, where=tuple(dict.fromkeys((*where, *finding.where))))


def _as_layers(passes: EqualPasses) -> EqualLayers:
    """The passes as layers with the ops behind them: each op of a pass has its like in the others."""
    columns = [[start + at for start in passes.starts] for at in range(passes.ops)]
    views = set(passes.views)
    return EqualLayers(
        layers=columns[0],
        ops=[ats for number, ats in enumerate(columns) if number and number not in views],
        views=[at for number in sorted(views) for at in columns[number]],
        same_input=False,
    )


def _recorded_alike(price: Price, seen: ObservedOps, passes: EqualPasses) -> bool:
    """Whether autograd records all of the passes, or none of them."""
    recorded = {bool((price.ops.events.sequence[seen.rows_at([start])] >= 0).any()) for start in passes.starts}
    return len(recorded) == 1


def _where(
    price: Price, seen: ObservedOps, sites: CallSites, costs: LineCosts | None, passes: EqualPasses
) -> tuple[Source, ...]:
    """The lines that call the passes: where the calls that lead to them part; of a loop its statement."""
    found: dict[tuple[str, int], None] = {}
    for rows in zip(*(_first(seen, start) for start in passes.starts), strict=True):
        stacks = [sites.op_stack(row) for row in rows if row >= 0]
        known = [tuple(reversed(stack)) for stack in stacks if stack]
        if len(known) < len(passes.starts):
            continue
        depth = next((at for at, lines in enumerate(zip(*known, strict=False)) if len(set(lines)) > 1), None)
        if depth is not None:
            found |= dict.fromkeys(sorted({stack[depth] for stack in known}))
            break
    if found:
        return tuple(sites.sources[at] for at in found if at in sites.sources)
    begins = seen.rows_at(passes.starts)
    line = loop_line(sites, costs, begins, len(passes.starts), price.ops.steps.count) if costs is not None else None
    return (line,) if line else ()


def _first(seen: ObservedOps, start: int) -> list[int]:
    """In each step the event of that op."""
    return [int(rows[start]) for rows in seen.places]


_CALLS = "[F   ][R ][G   ][H   ][S ][I   ][T][L][Z     ][X ][Y     ][W     ][V ][U     ][O]"
_LITTLE = "   [M]       [M]    [M]       [M]        [N]        [N]     [N]        [N]   "
_MOST = "[M   ]    [M   ][M   ]    [M   ]      [N     ]    [N     ][N     ]    [N     ]   "
_NAMES = "linear relu linear linear relu linear sub mse_loss"
_WAITS: list[list[int]] = [[], [1], [1], [], [1], [1], [1, 4], [1]]


def _drawn(work: str = _LITTLE, rows: int = 512, width: int = 192, *, free: bool = False) -> Drawing:
    """Two passes through two layers with a product (M) in each, a loss (L) of both, nodes with products (N).

    free: the second pass records no gradients.
    """
    given, weight = [rows, width], [width, width]
    of_products: dict[str, Any] = {"dtypes": ["float", "float"]}
    ops: dict[str, Any] = {
        "T": op("sub", given, given, number=7),
        "L": op("mse_loss", given, given, number=8),
        "M": replace(op("mm", given, weight), **of_products),
        "N": replace(op("mm", [width, rows], given), **of_products),
    }
    for number, name in enumerate("FRGHSI", 1):
        recorded = None if free and name in "HSI" else number
        kind = ("relu", given) if name in "RS" else ("linear", given, weight, [width])
        ops[name] = op(*kind, number=recorded)
    for number, name in zip((6, 5, 4, 3, 2, 1), "ZXYWVU", strict=True):
        ops[name] = node(number)
    return two_steps(_CALLS, work, **ops)


def _seen(*starts: int) -> dict[str, Any]:
    """What was observed: passes of three ops from these on."""
    return observed(_NAMES, _WAITS, passes=[{"starts": list(starts), "ops": 3}] if starts else [])


EXAMPLES = [
    Example(
        "both sides of a pair through two layers",
        _drawn(),
        saves_us=(1200, 1600),
        facts=_seen(0, 3),
        says=("2 batches of 512 go through the same 3 ops", "although none needs another's result"),
    ),
    Example("passes whose time is arithmetic", _drawn(_MOST, 4096, 1024), None, _seen(0, 3), near_miss=True),
    Example("the second pass records no gradients", _drawn(free=True), None, _seen(0, 3), near_miss=True),
    Example("a batch norm, or a pass that needs the other's result", _drawn(), None, _seen(), near_miss=True),
    Example(
        "one pass of all",
        two_steps("[F    ][L][B    ][O]", L=op("mse_loss")),
        None,
        observed("linear mse_loss", [[], [1]]),
    ),
]
