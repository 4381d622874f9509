"""Recurrent layers that are called for one position after the other beside a device: what one call does not take."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from msgspec import Struct

from advisor.api import (
    AUTOGRAD_NODE,
    GRADIENT_STORE,
    Intervals,
    Ints,
    Price,
    RowMask,
    Saving,
    StepOps,
    backward_of,
    union,
)

from ..shared._listed import Listed, as_lists
from ._known_beforehand import known_beforehand

# Fewer calls are layers of a model, or too few to rewrite a loop for; so is less than 3 % of the step.
FEWEST, WORTH = 16, 0.03
LAYERS = {"aten::gru": "GRU", "aten::lstm": "LSTM", "aten::rnn_tanh": "RNN", "aten::rnn_relu": "RNN"}
# What the layers call on a device, where they are not recorded themselves, and the cells of a loop by hand.
_CALLS = {"aten::_cudnn_rnn": "RNN", "aten::miopen_rnn": "RNN", "aten::lstm_cell": "LSTM", "aten::gru_cell": "GRU"}
KINDS = LAYERS | _CALLS
# Ops of an iteration; more are no body of a loop that someone wrote around a layer.
_MOST_OPS = 200
# What a layer makes where it is given no state.
_ZEROS = ("aten::zeros", "aten::new_zeros", "aten::zeros_like")
_HOW = (
    "low: nothing, if something else delays the device as long, or if what a call reads was computed from the output "
    "of the one before, which a trace does not say; high: one call for all positions, and one op for each that follows "
    "it, at what these kernels take beyond their start; those of the layer itself stay"
)


class Turns(Struct, frozen=True, eq=False):
    """A loop that calls a recurrent layer for each position.

    calls  rows of the calls;  rows: all outermost ops of the loop
    """

    calls: Ints
    rows: Ints


def turns_of_layers(ops: StepOps, fewest: int) -> Iterator[Turns]:
    """Loops of so many turns that do the same, whose inputs are parts of tensors that were there before."""
    events, rows = ops.events, ops.outermost
    calls = np.flatnonzero(events.exactly(*KINDS)[rows])
    for first, last in _alike(ops, calls, fewest):
        mine = rows[calls[first:last]]
        between = np.stack([rows[one + 1 : other] for one, other in pairwise(calls[first:last].tolist())])
        ahead = _ahead(ops, int(calls[first]), between[0])
        after = between.shape[1] - len(ahead)
        before = np.concatenate((ahead[None], between[:, after:]))
        if _told_as_cells(ops, mine, between) or not known_beforehand(events, int(mine[0]), before, between[:, :after]):
            continue
        end = int(calls[last - 1]) + 1
        while end < len(rows) and after and events.name[rows[end]] == events.name[between[0, -len(ahead) - after]]:
            end, after = end + 1, after - 1
        yield Turns(mine, np.concatenate((ahead, rows[calls[first] : end])))


def _alike(ops: StepOps, calls: Ints, fewest: int) -> Iterator[tuple[int, int]]:
    """First call and the one behind the last of each row of calls of one layer with the same ops between them."""
    events, rows = ops.events, ops.outermost
    if len(calls) < fewest:
        return
    names, step = events.name[rows], ops.links.step[rows]

    def turn(at: int) -> tuple[object, ...] | None:
        """What lies between a call and the next one, and which layer that is; None where no loop goes on there."""
        one, other = calls[at], calls[at + 1]
        apart = step[one] != step[other] or other - one > _MOST_OPS
        form = [(names[call], events.dims[rows[call]]) for call in (one, other)]
        return None if apart or form[0] != form[1] else (names[one:other].tobytes(), *form[0])

    first, before = 0, None
    for at in range(len(calls)):
        mine = turn(at) if at + 1 < len(calls) else None
        if mine is not None and before in (None, mine):
            before = mine
            continue
        if at + 1 - first >= fewest and before is not None:
            yield first, at + 1
        # The call that ends one row of them may begin the next.
        first, before = (at, mine) if mine is not None else (at + 1, None)


def _ahead(ops: StepOps, call: int, between: Ints) -> Ints:
    """The ops before the first call of all that stand before each later one as well. The state's zeros are its own."""
    names, step, rows = ops.events.name, ops.links.step, ops.outermost
    zeros = ops.events.exactly(*_ZEROS)
    found: list[int] = []
    for row in rows[max(call - _MOST_OPS, 0) : call][::-1].tolist():
        expected = int(between[-1 - len(found)]) if len(found) < len(between) else -1
        if expected < 0 or step[row] != step[expected]:
            break
        if names[row] == names[expected]:
            found.append(row)
        elif not zeros[row]:
            break
    return np.array(found[::-1], np.int64)


def _told_as_cells(ops: StepOps, calls: Ints, between: Ints) -> bool:
    """Whether `tensor-loop` tells them: cells, between which nothing is launched."""
    return "_cell" in ops.events.text(int(calls[0])) and not len(ops.launched(between.ravel()))


class PositionsOnDevice(Struct, frozen=True, eq=False):
    """Recurrent layers called position by position, beside a device.

    calls, rows  of all such loops;  in_a_row: calls of the longest one
    spans        when the host is in them, and in their backward pass
    kernels_us   what they launch takes, µs per profiled step;  waited_us: what the device waits for launches meanwhile
    told         whether they are worth telling: then other rules leave their waits to that
    """

    calls: Ints
    rows: Ints
    in_a_row: int
    spans: Intervals
    listed: Listed
    saving: Saving
    kernels_us: float
    waited_us: float
    told: bool

    @classmethod
    def of(cls, price: Price, fewest: int, least: float) -> PositionsOnDevice | None:
        """Those of at least so many calls in a row; None without any."""
        ops = price.ops
        found = list(turns_of_layers(ops, fewest)) if price.on_device else []
        if not found:
            return None
        calls, rows = (np.concatenate([getattr(one, part) for one in found]) for part in ("calls", "rows"))
        engine = _engine(ops)
        mine, of_layers = (_behind(ops, engine, one) for one in (rows, calls))
        every = np.concatenate((rows, engine[mine]))
        # Gradients that turns add to each other are stored once.
        stay = ops.launched(np.concatenate((calls, engine[of_layers & (ops.events.sequence[engine] >= 0)])))
        listed = as_lists(price, None, every, round(len(every) * len(found) / len(calls)), stay=stay)
        spans = _spans(ops, [*(one.rows for one in found), *_runs(engine, mine)])
        saving = listed.saving(price, _HOW)
        return cls(
            calls=calls,
            rows=rows,
            in_a_row=max(len(one.calls) for one in found),
            spans=spans,
            listed=listed,
            saving=saving,
            kernels_us=ops.device_us(every),
            waited_us=price.breakdown.us_in("idle_launch", spans),
            told=saving.high_us >= least * price.scale.step_us,
        )


class ToldPositions(Struct, frozen=True, eq=False):
    """When the host is in loops over positions that `recurrent-positions` tells beside a device, and their ops."""

    spans: Intervals
    rows: Ints

    @classmethod
    def compute(cls, price: Price) -> ToldPositions:
        """Nothing of both where it tells nothing."""
        found = PositionsOnDevice.of(price, FEWEST, WORTH)
        if found is None or not found.told:
            return cls(np.empty((0, 2), np.int64), np.empty(0, np.int64))
        return cls(found.spans, found.rows)


def _engine(ops: StepOps) -> Ints:
    """The engine's calls of nodes in the steps, in order of start."""
    calls = np.flatnonzero((ops.events.named(AUTOGRAD_NODE) | ops.events.exactly(GRADIENT_STORE)) & ops.links.inside)
    outermost: Ints = calls[ops.nesting.outer_op[calls] == calls]
    return outermost


def _runs(engine: Ints, mine: RowMask) -> list[Ints]:
    """Of the engine's calls, those that are mine and follow each other."""
    ends = np.flatnonzero(np.diff(np.flatnonzero(mine)) > 1) + 1
    return [one for one in np.split(engine[mine], ends) if len(one)]


def _spans(ops: StepOps, runs: list[Ints]) -> Intervals:
    """From the first to the last row of each."""
    events = ops.events
    starts = np.array([events.start_ns[one[0]] for one in runs], np.int64)
    return union(starts, np.array([events.end_ns[one[-1]] for one in runs], np.int64))


def _behind(ops: StepOps, engine: Ints, rows: Ints) -> RowMask:
    """Which of the engine's calls run the nodes of these ops, or store the gradients that one of those has made."""
    numbered = ops.events.sequence[engine] >= 0
    mine = numbered & np.isin(engine, ops.nesting.outer_op[backward_of(ops.events, rows)])
    latest = np.maximum.accumulate(np.where(numbered, np.arange(len(engine)), -1))
    found: RowMask = mine | (~numbered & (latest >= 0) & mine[latest])
    return found
