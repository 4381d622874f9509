"""Several backward passes run through the same graph in one step.

## What it looks at
The nodes of autograd's graph, each identified by the number of the forward op that recorded it. A number that occurs in
several backward passes is a node that was evaluated that many times. Counted are passes that accumulate gradients into
the same parameters, while nothing between them reads, clears or applies the gradients of the first ones; and calls of
`torch.autograd.grad` that differentiate one output by several inputs, each with ones as the output's gradient.

## Why it costs time
`loss.backward(retain_graph=True)` for each of several losses runs through all layers that they share once per loss.
Gradients are sums: one pass from the sum of the losses gives the same ones, and evaluates each node once. Retaining
the graph also keeps its activations in memory for longer. Derivatives by the coordinates x, y and t in three calls run
three times through the network, too; with `create_graph=True` each run is recorded, and differentiated once more.

## How to fix it
`sum(losses).backward()`, or `torch.autograd.backward(losses)` if the losses are not on one device. Where a hidden
state carries the graph of one part of a sequence into the next, either sum the losses of the parts, which gives the
same gradients, or cut the graph with `hidden = hidden.detach()`, which trains through one part alone. Derivatives of
one output by several inputs come from one call: `torch.autograd.grad(u, (x, y, t), torch.ones_like(u),
create_graph=True)`.

## When to leave it
Where the gradients of each loss are needed separately, to weight or project them against each other. Gradients that
are summed in another order differ in their last digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    GEMM,
    GRADIENT_STORE,
    OPTIMIZER,
    BackwardPasses,
    CallSites,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    Intervals,
    Ints,
    Lines,
    Price,
    Saving,
    Source,
    Trace,
    backward_passes,
    draw,
    edits,
    total,
    union,
)

from ..shared._examples import node
from ..shared._places import TRIED, first_line, place
from ..shared._words import count, each_step
from ._repeated_nodes import Repeated, repeated
from ._repeated_slopes import Slopes, slopes

CONFIRMED = "measured pair on a CPU: three losses of one network, one backward pass each against one for their sum"


def check(
    price: Price,
    backward: BackwardPasses,
    lines: Lines | None,
    *,
    min_share: float = 0.02,  # a line to change; below 2 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    trace, nesting = price.ops.trace, price.ops.nesting
    claims = price.claims("backward", "other_ops", "host")
    found = backward.seen(lambda passes: repeated(trace, nesting, passes))
    if found is not None:
        spent_us, saving = _costs(price, found, claims)
        if saving.high_us >= min_share * price.scale.step_us:
            yield _of_losses(price, found, lines, spent_us, saving)
    several = backward.seen(lambda passes: slopes(trace.events, nesting, price.ops.steps, passes))
    if several is not None:
        saving = _of_one_call(price, several, claims)
        if saving.high_us >= min_share * price.scale.step_us:
            yield _of_inputs(price, several, lines, saving)


def _of_losses(price: Price, found: Repeated, lines: Lines | None, spent_us: float, saving: Saving) -> Finding:
    """Several losses, a backward pass each."""
    at = (first_line(lines, found.firsts[:TRIED]), first_line(lines, found.roots[:TRIED]))
    where = tuple(dict.fromkeys(source for source in at if source is not None))
    named = place(where[0] if where else None)
    return Finding(
        message=(
            f"{count(found.passes)} backward passes run through the same graph{named} and evaluate up to "
            f"{count(found.shared)} of its nodes each, for gradients that are only summed: the repeats take "
            f"{each_step(price, spent_us)}."
        ),
        saving=saving,
        where=where,
        facts={"passes": found.passes, "shared_nodes": found.shared, "repeated_us": spent_us},
        fix=Fix(
            "Sum the losses and call `backward()` once",
            "numerics",
            "for weight, loss in zip(weights, losses):\n    (weight * loss).backward(retain_graph=True)",
            "sum(weight * loss for weight, loss in zip(weights, losses)).backward()",
        ),
        claims=price.claims("backward", "other_ops", "host"),
    )


def _of_inputs(price: Price, found: Slopes, lines: Lines | None, saving: Saving) -> Finding:
    """One output, several calls of grad()."""
    group = max(found.groups, key=len)
    spent_us = price.spent_us(found.rows)
    where = tuple(dict.fromkeys(source for one in group for source in _called(price.ops.trace, lines, one)))
    named = place(where[0] if where else None)
    return Finding(
        message=(
            f"{count(len(group))} calls of torch.autograd.grad(){named} differentiate one output by an input each "
            f"and evaluate up to {count(found.shared)} nodes of its graph again, where one call gives all of these "
            f"gradients: the repeats take {each_step(price, spent_us)}."
        ),
        saving=saving,
        where=where,
        facts={"calls": len(group), "shared_nodes": found.shared, "repeated_us": spent_us},
        fix=Fix(
            "Compute the gradients of all inputs in one call",
            "numerics",
            "u_x, u_y = (torch.autograd.grad(u, each, torch.ones_like(u), create_graph=True)[0] for each in (x, y))",
            "u_x, u_y = torch.autograd.grad(u, (x, y), torch.ones_like(u), create_graph=True)",
        ),
        claims=price.claims("backward", "other_ops", "host"),
    )


def _called(trace: Trace, lines: Lines | None, one: backward_passes.Pass) -> tuple[Source, ...]:
    """The lines that ask for a pass: the one that calls a helper around grad(), and that of grad() itself."""
    rows = np.array(one.nodes, np.int64)
    apart = CallSites.compute(trace, lines).where_apart(rows) if lines is not None else None
    return tuple(source for source in (apart, first_line(lines, rows[:TRIED])) if source is not None)


def _of_one_call(price: Price, found: Slopes, claims: tuple[str, ...]) -> Saving:
    """What the step saves where one call takes the gradients of all inputs."""
    how = (
        "low: all evaluations of shared nodes but the first, those of their records among them, minus the sums needed "
        "where branches meet; high: all of these"
    )
    least = np.setdiff1d(found.rows, found.sums)
    if price.on_device:
        return price.saving([edits.remove(least)], [edits.remove(found.rows)], claims, how)
    spans = _spans(price.ops.trace, found.rows, found.calls)
    how += ", and the calls of grad() around them"
    return price.saving([edits.remove(least)], [edits.remove_time(spans)], claims, how)


def _costs(price: Price, found: Repeated, claims: tuple[str, ...]) -> tuple[float, Saving]:
    """(recorded µs per step of the repeats, what the step saves without them)."""
    # Where branches of the losses meet, a sum comes instead: a repeated row on as many bytes stays for it.
    least = np.setdiff1d(found.rows, found.sums)
    how = "low: all evaluations of shared nodes but the first, minus the sums needed where branches meet; high: all of "
    if price.on_device:
        gone, all_gone = edits.remove(least), edits.remove(found.rows)
        return price.spent_us(found.rows), price.saving([gone], [all_gone], claims, how + "these evaluations")
    how += "these, and the calls of backward() around them"
    trace = price.ops.trace
    some, spans = _spans(trace, least, found.calls), _spans(trace, found.rows, found.spans)
    saving = price.saving([edits.remove_time(some)], [edits.remove_time(spans)], claims, how)
    return price.ops.steps.per_step_us(total(spans)), saving


_BATCH, _WEIGHT = [64, 256], [256, 256]


def _spans(trace: Trace, rows: Ints, more: Intervals) -> Intervals:
    """When these rows ran, and these spans."""
    starts, ends = trace.events.start_ns[rows], trace.events.end_ns[rows]
    return union(np.concatenate((starts, more[:, 0])), np.concatenate((ends, more[:, 1])))


def _op(name: str, number: int) -> Ev:
    return Ev(name, dims=[_BATCH, _WEIGHT], args={"Sequence number": number, "Fwd thread id": 0})


# A layer (A) and its activation (B); the nodes of two losses (Y, X), of the activation (T) and of the layer (Z).
_STEPS = """
    step [1                                                 ] [2                                                 ]
    cpu  [A][B][R][Y][T ][Z   ][S ][Q][R][X][T ][Z   ][S ][O] [C][D][R][W][U ][V   ][S ][Q][R][G][U ][V   ][S ][P]
    cpu               [N]       [J]          [N]       [K]                 [N]       [J]          [N]       [K]
    """
_SUM = """
    step [1                          ] [2                          ]
    cpu  [A][B][R][Y][T ][Z   ][S ][O] [C][D][R][W][U ][V   ][S ][P]
    cpu               [N]       [J]                 [N]       [J]
    """
_DEVICE = """
    gpu 7                [L   ]                 [L   ]                         [L   ]                 [L   ]
    """
_MUL = Ev("aten::mul", dims=[[], []])


def _drawn(
    *, added: bool = True, one_graph: bool = True, together: bool = False, on_device: bool = False, between: Ev = _MUL
) -> Drawing:
    """Two backward passes in each step.

    added: the second adds to what the first stored; one_graph: both go through the same layer; together: there is no
    second; on_device: the layer's node is a kernel of 600 µs; between: what runs between them.
    """
    text = _SUM if together else _STEPS
    if not one_graph:
        text = text.replace("[X][T ][Z", "[X][t ][z").replace("[G][U ][V", "[G][u ][v")
    numbers = {"Z": 1, "T": 2, "z": 3, "t": 4, "Y": 5, "X": 6, "V": 11, "U": 12, "v": 13, "u": 14, "W": 15, "G": 16}
    rows: dict[str, Any] = {name: node(number, launches=None) for name, number in numbers.items()}
    rows |= {"A": _op("aten::linear", 1), "B": _op("aten::relu", 2)}
    rows |= {"C": _op("aten::linear", 11), "D": _op("aten::relu", 12)}
    rows |= {
        "P": OPTIMIZER,
        "Q": between,
        "R": Ev("aten::ones_like", dims=[[]]),
        "N": Ev("aten::threshold_backward", dims=[_BATCH, _BATCH]),
        "S": Ev(GRADIENT_STORE, dims=[_WEIGHT], launches=""),
        "J": Ev("aten::detach", dims=[_WEIGHT]),
        "K": Ev("aten::add_" if added else "aten::detach", dims=[_WEIGHT, _WEIGHT]),
    }
    if on_device:
        text += _DEVICE
        rows = {name: replace(row, launches="kernel" if name in "ZV" else "") for name, row in rows.items()}
        rows["L"] = GEMM
    return draw(text, us=100, **{name: row for name, row in rows.items() if f"[{name}" in text})


def _slopes(*, ones: bool = True, one_call: bool = False, of_two: bool = False) -> Drawing:
    """Derivatives of an output by two inputs, a call each.

    ones: each call begins with ones; one_call: the second does not run; of_two: it starts from another output.
    """
    text = """
        step [1                              ] [2                              ]
        cpu  [A][B][R][T ][Z   ][Q][T ][Z   ]  [C][D][R][U ][V   ][Q][U ][V   ]
        """
    if one_call:
        text = text.replace("[Q][T ][Z   ]", " " * 13).replace("[Q][U ][V   ]", " " * 13)
    if of_two:
        text = text.replace("[Q][T ]", "[Q][Y ]").replace("[Q][U ]", "[Q][W ]")
    numbers = {"Z": 1, "T": 2, "Y": 3, "V": 11, "U": 12, "W": 13}
    rows: dict[str, Any] = {name: node(number, launches=None) for name, number in numbers.items()}
    rows |= {"A": _op("aten::linear", 1), "B": _op("aten::relu", 2)}
    rows |= {"C": _op("aten::linear", 11), "D": _op("aten::relu", 12)}
    first = Ev("aten::ones_like", dims=[_BATCH])
    rows |= {"R": first, "Q": first if ones else Ev("aten::select", dims=[_BATCH])}
    return draw(text, us=100, **{name: row for name, row in rows.items() if f"[{name}" in text})


EXAMPLES = [
    Example(
        "two losses of one network, backward one by one",
        _drawn(),
        saves_us=(1000, 1700),
        says=("2 backward passes run through the same graph", "up to 2 of its nodes"),
    ),
    Example("the same beside a GPU", _drawn(on_device=True), saves_us=(900, 1200), says=("2 backward passes",)),
    Example("each loss has a graph of its own", _drawn(one_graph=False), near_miss=True),
    Example("the gradients of the first loss are dropped before the second", _drawn(added=False), near_miss=True),
    Example(
        "the gradients of the first loss are read before the second",
        _drawn(between=Ev("aten::clone", dims=[_WEIGHT])),
        near_miss=True,
    ),
    Example(
        "a hidden state with its graph: the next part runs through the layers before its backward pass",
        _drawn(between=Ev("aten::linear", dims=[_BATCH, _WEIGHT])),
        saves_us=(1000, 1700),
        says=("2 backward passes run through the same graph",),
    ),
    Example(
        "derivatives by two inputs, a call of grad() each",
        _slopes(),
        saves_us=(900, 1300),
        says=("2 calls of torch.autograd.grad()", "up to 2 nodes"),
    ),
    Example("one call for both inputs", _slopes(one_call=True)),
    Example("rows of a Jacobian: another gradient of the output each", _slopes(ones=False), near_miss=True),
    Example("two outputs, differentiated one by one", _slopes(of_two=True), near_miss=True),
    Example("the losses are added up", _drawn(together=True)),
    Example("the optimizer steps after each loss", _drawn(between=OPTIMIZER), near_miss=True),
]
