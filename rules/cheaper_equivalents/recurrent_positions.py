"""A recurrent layer is called for one position after the other.

## What it looks at
`nn.GRU`, `nn.LSTM` or `nn.RNN` called sixteen times or more in a step, each time with a part of one tensor that was
there before the first call. `advisor run` observes in one step which op made what a call reads: inputs that depend on
the output before, as in a decoder that generates, are another matter.

On a device what counts is how long it waits for launches in such a loop, in the backward pass as well, and what the
kernels of the ops around the calls take only to start. What a call reads is not observed there. A loop is considered if
the ops before each call take a part of a tensor with a part for every call, look it up or join such parts; and if no op
between two calls selects among outputs, samples, reads a value, or computes a tensor of the state's size. These are
left to `launch-bound`, and so is a loop whose shapes are not recorded.

## Why it costs time
Each call checks its arguments, makes views of its weights and multiplies its part of the input alone. Called once, the
layer multiplies the input of all positions by one product, and loops over them in C++. In the backward pass each part
of the input gets a gradient as large as the whole, and these are added up. On a device each call is some dozen kernels
that are over before the host has launched the next, and so are those of the ops that follow it, such as the loss.

## How to fix it
`outputs, state = self.gru(inputs)`: the layer returns the output of every position. Compute what follows, such as the
loss, from all outputs at once.

## When to leave it
Where the input of a position needs the output of the one before, and where the state is changed between two positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    Drawing,
    Events,
    Example,
    Finding,
    Fix,
    Ints,
    LineCosts,
    Lines,
    Missing,
    Price,
    Readers,
    backward_of,
    constant,
    dims_of,
    duration,
    loop_around,
    sizes,
    with_backward,
)

from ..shared._examples import node, observed, op, two_steps
from ..shared._places import first_line, place
from ..shared._words import count, each_step, often
from ._equivalent import Equivalent, rows_of, worth
from ._positions_on_device import FEWEST, KINDS, LAYERS, WORTH, PositionsOnDevice
from ._positions_on_device_examples import EXAMPLES as ON_DEVICE

_SAVED = {
    "GRU": constant("share.gru_positions").range,
    "LSTM": constant("share.lstm_positions").range,
    "RNN": constant("share.rnn_positions").range,
}
_HOW = (
    "the share of these calls, of the Python between them and of their backward pass that one call saved in "
    "measurements on a CPU"
)
_NOT_OBSERVED = "it was not recorded which ops read the results of others; capture the run with `advisor run`"


def check(
    price: Price,
    lines: Lines | None,
    costs: LineCosts | None,
    readers: Readers | None,
    *,
    min_positions: int = FEWEST,  # fewer calls are layers of a model, or too few to rewrite a loop for
    min_share: float = WORTH,  # a loop to remove; below 3 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    events, steps = price.ops.events, price.ops.steps
    if price.on_device:
        yield from _on_device(price, lines, min_positions, min_share)
        return
    if not events.exactly(*LAYERS).any():
        return
    if readers is None:
        raise Missing(_NOT_OBSERVED)
    found = [
        calls for row in price.ops.outermost.tolist() if len(calls := _calls(events, readers, row)) >= min_positions
    ]
    if not found:
        return
    rows = np.unique(np.concatenate(found))
    kind = LAYERS[events.text(int(rows[0]))]
    saved = _SAVED[kind]
    spans = np.array([[events.start_ns[calls[0]], events.end_ns[calls[-1]]] for calls in found], np.int64)
    one = Equivalent(
        parts=((spans, *saved), (backward_of(events, rows), *saved)),
        how=_HOW,
        claims=("forward", "backward", "other_ops", "host"),
        shown=rows_of(*(int(calls[0]) for calls in found)),
        moves_as_much=True,
        spent_us=price.spent_us(with_backward(events, rows)),
    )
    known = worth(price, lines, one, min_share)
    if known is None:
        return
    times = len(rows) / steps.count
    finding = known.finding(
        f"`nn.{kind}` is called {often(times)}{known.at}, for {count(len(found[0]))} parts of one tensor one after the "
        f"other: {known.spent}, backward pass included.",
        {"calls": times, "spent_us": known.spent_us},
        Fix(
            f"Call `nn.{kind}` once for the whole sequence",
            "numerics",
            "for t in range(inputs.shape[1]):\n    output, state = self.layer(inputs[:, t : t + 1], state)",
            "outputs, state = self.layer(inputs)",
        ),
    )
    around = loop_around(costs, known.where) if known.where and costs is not None else None
    yield replace(finding, where=tuple(dict.fromkeys((*finding.where, *((around,) if around else ())))))


def _on_device(price: Price, lines: Lines | None, fewest: int, least: float) -> Iterator[Finding]:
    """Of the launches around so many calls, and of what goes back through them, those around one remain."""
    found = PositionsOnDevice.of(price, fewest, least)
    if found is None or not found.told:
        return
    name = price.ops.events.text(int(found.calls[0])).removeprefix("aten::")
    where, times = first_line(lines, found.calls), len(found.calls) / price.ops.steps.count
    yield Finding(
        message=(
            f"`{name}` is called {often(times)}{place(where)}, for {count(found.in_a_row)} positions one after the "
            f"other, each a part of a tensor: with the backward pass the GPU spends "
            f"{each_step(price, found.kernels_us)} on the kernels of this loop, and waits "
            f"{duration(price.scale.scaled(found.waited_us))} for launches of the host meanwhile."
        ),
        saving=found.saving,
        where=(where,) if where else (),
        facts={"calls": times, "waited_us": found.waited_us, "kernels_us": found.kernels_us},
        fix=_once(KINDS[f"aten::{name}"]),
        claims=found.listed.claims,
        at_most="medium",  # what each call reads, a trace does not say
    )


def _once(kind: str) -> Fix:
    return Fix(
        "Call the recurrent layer once for all time steps",
        "numerics",
        "for t in range(len(inputs)):\n"
        "    output, state = layer(inputs[t : t + 1], state)\n"
        "    loss += criterion(head(output), targets[t])",
        "# where each input is known beforehand, as in teacher forcing; a decoder that feeds back its outputs cannot\n"
        f"outputs, state = layer(inputs, state)  # layer: nn.{kind}\n"
        "loss = criterion(head(outputs), targets)",
    )


def _calls(events: Events, readers: Readers, row: int) -> Ints:
    """Calls of one recurrent layer for a single position each, that read what the op in this row made.

    Each goes on with the state that the one before left, as it is.
    """
    mine = sorted(one for one in readers.of(row) if events.text(one) in LAYERS)
    alike = all(events.dims[one] == events.dims[mine[0]] for one in mine)
    if not mine or not alike or 1 not in sizes(dims_of(events, mine[0]), 0)[:2]:
        return np.empty(0, np.int64)
    if any(later not in readers.of(before) for before, later in pairwise(mine)):
        return np.empty(0, np.int64)
    return np.array(mine, np.int64)


_CALLS = 16
_PART, _STATE = [8, 1, 24], [1, 8, 24]


def _drawn(cpu: str = "[F ]" + "[G ]" * _CALLS + "[L][X][Y                               ][O]", **ops: Any) -> Drawing:
    """A layer (F), calls of a recurrent one (G), a sum (L) and nodes of the sum and of the calls."""
    known: dict[str, Any] = {
        "F": op("linear", [8, 16, 24], [24, 24]),
        "G": op("gru", _PART, _STATE, number=1),
        "L": op("sum", [8, 16, 24], number=3),
        "X": node(3, "SumBackward0"),
        "Y": node(1, "AddmmBackward0"),
    }
    return two_steps(cpu, **(known | ops))


def _seen(between: bool = False, generated: bool = False) -> dict[str, Any]:
    """Each call reads what the layer made, or the call before alone, and the state of that one, as it is or not."""
    names: list[str] = ["linear"]
    waits: list[list[int]] = [[]]
    for at in range(_CALLS):
        if between and at:
            names.append("mul")
            waits.append([1])
        names.append("gru")
        source = 1 if generated and at else len(waits)
        waits.append([source, 1] if at else [1])
    return observed(" ".join([*names, "sum"]), [*waits, [1]])


EXAMPLES = [
    Example(
        "a GRU over sixteen positions",
        _drawn(),
        saves_us=(200, 7000),
        facts=_seen(),
        says=("`nn.GRU` is called 16 times a step", "for 16 parts of one tensor"),
        fixes=("once for the whole sequence",),
    ),
    Example(
        "each input is what the call before returned, as where sequences are generated",
        _drawn(),
        facts=_seen(generated=True),
        near_miss=True,
    ),
    Example(
        "the state is masked between two positions",
        _drawn(
            "[F ][G ]" + "[M][G ]" * (_CALLS - 1) + "[L][X][Y                               ][O]",
            M=op("mul", _STATE, _STATE),
        ),
        facts=_seen(between=True),
        near_miss=True,
    ),
    Example(
        "once for the whole sequence",
        _drawn(
            "[F ][G           ][L][X][Y                               ][O]", G=op("gru", [8, 16, 24], _STATE, number=1)
        ),
        facts=observed("linear gru sum", [[], [1], [1]]),
    ),
    *ON_DEVICE,
]
