"""Recurrent cells that a loop calls for one part of a sequence after the other, told by their ops."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
from msgspec.structs import replace

from advisor.api import BACKWARD, Finding, Fix, Ints, Lines, Price, Source, backward_of, edits

from ..shared._words import each_step, often

_CELLS = {
    "aten::lstm_cell": "LSTM",
    "aten::gru_cell": "GRU",
    "aten::rnn_tanh_cell": "RNN",
    "aten::rnn_relu_cell": "RNN",
}
# What each turn takes its part with: what a loop makes for itself, as a decoder does, no op over all turns can know.
_PARTS = ("aten::select", "aten::slice", "aten::narrow")
# Fewer turns nobody rewrites a loop for.
_TURNS = 16
# Of two products of a cell, with its input and with its state, the state's alone stays in each turn; of the four of its
# backward pass (for both, the gradient of what goes in and that of the weight), the gradient of the state.
_AHEAD, _BEHIND = 1 / 2, 1 / 4
_HOW = (
    "high: in each iteration only the product with the state and the cell itself stay, and the host only launches; "
    "low: nothing, as other work may hide the loop, and its input may be what the iteration before made"
)


def cells_in_turn(price: Price, lines: Lines, seen: Ints, min_share: float) -> Iterator[Finding]:
    """Runs of cells and of views between them, which take so much of the step.

    seen: rows of loops that are known already.
    """
    events, ops = price.ops.events, price.ops
    rows = _runs(price)
    rows = rows[~np.isin(rows, seen)]
    if not len(rows):
        return
    behind = backward_of(events, rows)
    spent_us = price.spent_us(np.concatenate((rows, behind)))
    if spent_us < min_share * ops.steps.step_us:
        return
    launched = [ops.launched(one) for one in (rows, behind)]
    of_cell = [events.named("_cell_")[one] for one in launched]
    most = [
        edits.scale(launched[0][~of_cell[0]], _AHEAD),
        edits.scale(launched[1][~of_cell[1]], _BEHIND),
        edits.scale(np.concatenate((rows, behind)), _launching(price, rows, behind)),
    ]
    saving = price.saving([], most, (), _HOW)
    if saving.high_us < min_share * price.scale.step_us:
        return
    name = events.text(int(rows[0]))
    where = lines.where_op(int(rows[0]))
    calls = len(rows) / ops.steps.count
    yield Finding(
        message=(
            f"A loop runs `{name.removeprefix('aten::')}` {often(calls)}, each on its part of a tensor: "
            f"{each_step(price, spent_us)}{', with the backward pass' if len(behind) else ''}."
        ),
        saving=saving,
        where=(where,) if where else (),
        facts={"times": calls, "op": name, "cells_us": spent_us},
        fix=as_layer(_CELLS[name]),
        at_most="medium",  # whether what a turn reads was there before the loop, its ops do not say
    )


def _launching(price: Price, *ops: Ints) -> float:
    """The share of these ops that calls of the runtime take: what an op that does all turns still has to do."""
    events, rows = price.ops.events, np.concatenate(ops)
    launch = np.unique(price.ops.links.launch[np.concatenate([price.ops.launched(one) for one in ops])])
    return min(float(events.dur_ns[launch].sum()) / max(float(events.dur_ns[rows].sum()), 1.0), 1.0)


def fix_of(op: str) -> Fix | None:
    """The layer for a loop over calls of this op; None where it is no cell."""
    kind = _CELLS.get(f"aten::{op}")
    return as_layer(kind) if kind else None


def perhaps_layer(price: Price, lines: Lines, where: Collection[Source]) -> Fix | None:
    """The layer for cells that these lines call in a loop; None where they call none.

    For loops of which nobody knows where an iteration has its input from.
    """
    events, at = price.ops.events, {one.place for one in where}
    rows = price.ops.outermost[events.exactly(*_CELLS)[price.ops.outermost]].tolist()
    mine = [row for row in rows if (one := lines.where_op(row)) is not None and one.place in at]
    if len(mine) < _TURNS * price.ops.steps.count:
        return None
    fix = as_layer(_CELLS[events.text(mine[0])])
    return replace(fix, title=f"{fix.title}, if its inputs are known before the loop")


def as_layer(kind: str) -> Fix:
    """One call of a recurrent layer in place of a loop over its cells."""
    state, states = ("(h, c)", "h, c") if kind == "LSTM" else ("h", "h")
    return Fix(
        f"Call `nn.{kind}` once for the whole sequence",
        "numerics",
        f"for t in range(len(x)):\n    {states} = cell(x[t], {state})\n    out.append(h)",
        f"out, {state} = layer(x, {state})  # layer: nn.{kind}, the cell's weights as weight_ih_l0, weight_hh_l0 …",
    )


def _runs(price: Price) -> Ints:
    """The cells of runs in which nothing else launches work, that take parts of a tensor, in so many turns."""
    events, ops = price.ops.events, price.ops
    backward = events.named(BACKWARD.name.split(":")[0])
    rows = ops.outermost
    rows = rows[ops.nesting.ancestor(backward)[rows] < 0]
    if not len(rows):
        return rows
    cell, part = events.exactly(*_CELLS)[rows], events.exactly(*_PARTS)[rows]
    works = np.zeros(len(events), bool)
    launch = ops.links.launch[np.flatnonzero(ops.trace.device_work & (ops.links.launch >= 0))]
    outer = ops.nesting.outer_op[launch]
    works[outer[outer >= 0]] = True
    step = ops.links.step[rows]
    ends = np.append(False, step[1:] != step[:-1]) | (works[rows] & ~cell & ~part)
    run = np.cumsum(ends)
    turns, parts = (np.bincount(run, weights=one) for one in (cell, part))
    long = (turns >= _TURNS) & (parts >= _TURNS)
    return rows[cell & long[run]]
