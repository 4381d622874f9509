"""Lines of the user's code that call the same short op again and again within a step."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from advisor.analyses.base.steps import Steps
from advisor.analyses.costs.line_costs import LineCost, LineCosts
from advisor.analyses.loops.line_blocks import LOOP_ITERATIONS, in_most_turns, is_python
from advisor.analyses.work.op_work import shapes
from advisor.constants import constant
from advisor.trace.events import Events, Ints, Trace
from advisor.trace.op_names import AUTOGRAD_NODE

# An op that takes longer has work to do besides being called.
SHORT_OP_US = constant("calls.short_op_us").value
# Ops with weights of their own: called no more often than there are weights, they are layers and no loop.
_LAYERS = ("aten::linear", "aten::conv", "aten::layer_norm", "aten::batch_norm", "aten::group_norm", "aten::embedding")

# Ops that give Python a number.
_READ = ("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero")
# Nine of ten gaps between the ops of a turn are no longer than this: what calling them takes.
_MOST_GAPS = 90


class Loop(Struct, frozen=True):
    """A line in a loop: iterations per step, the op that it calls most often, calls of ops with weights per step."""

    turns: float
    op: str
    layers: float
    network: bool = False  # each turn runs several ops of that name, layers that see one element
    reads: bool = False  # a library's loop that reads tensors number by number, as formatting them does
    spread: float = 1.0  # how many times as much work it is for all elements as for those that masks pick (`spread`)
    feeds: bool = False  # Python reads a number in each turn and may give it to the next
    numbers: bool = False  # its ops take single numbers, and no gradient is asked of them
    derives: bool = False  # each turn runs a backward pass through the forward pass of all, as rows of a Jacobian do


def layers_of(trace: Trace, steps: Steps, costs: LineCosts, rows: Ints) -> dict[int, float]:
    """By index of the line how many ops with weights of their own it calls per step."""
    events = trace.events
    layers = np.array([name.startswith(_LAYERS) for name in events.names], bool)
    lines = costs.op_line[rows[layers[events.name[rows]]]] if len(events.names) else rows
    return {line: calls / steps.count for line, calls in Counter(lines[lines >= 0].tolist()).items()}


# Each makes one number of a tensor.
_REDUCTIONS = ("norm", "linalg_vector_norm", "mean", "sum", "max", "min", "std", "var", "count_nonzero", "any", "all")


def loops(trace: Trace, steps: Steps, costs: LineCosts, rows: Ints, layers: Mapping[int, float]) -> dict[int, Loop]:
    """By index of the line those that call one short op again and again. layers: of `layers_of`."""
    events = trace.events
    by_line: dict[int, list[int]] = defaultdict(list)
    for row, line in zip(rows.tolist(), costs.op_line[rows].tolist(), strict=True):
        if line >= 0 and costs.lines[line].source.precision == "call":
            by_line[line].append(row)
    found = {}
    for line, called in by_line.items():
        cost, weighted = costs.lines[line], layers.get(line, 0.0)
        mean_us = float(events.dur_ns[called].sum()) / 1e3 / max(cost.rows * steps.count, 1.0)
        calls = {name: often / steps.count for name, often in Counter(events.name[called].tolist()).most_common()}
        name, turns, written = _turns(cost, calls, weighted)
        read = 0.0 if written else _numbers_read(trace, steps, cost, np.array(called))
        if max(turns, read) < LOOP_ITERATIONS or is_python(cost) or mean_us > SHORT_OP_US:
            continue
        op = events.names[name].removeprefix("aten::")
        if read >= LOOP_ITERATIONS:
            found[line] = Loop(read, _computed(events, calls, read), weighted, reads=True)
        elif written or _sees_one(trace, np.array(called)):
            found[line] = Loop(turns, op, weighted, network=not written)
    return found


def _computed(events: Events, calls: Mapping[int, float], read: float) -> str:
    """The reduction that makes most numbers of those read, such as the norm of each gradient; else "item"."""
    names = {events.names[name].removeprefix("aten::"): often for name, often in calls.items()}
    return next((name for name, often in names.items() if name in _REDUCTIONS and 2 * often > read), "item")


def _turns(cost: LineCost, calls: Mapping[int, float], weighted: float) -> tuple[int, float, bool]:
    """The op that a line turns around, how often it does a step, and whether that is a loop of the user's.

    calls: how often a step it calls each op, the commonest first; weighted: of these, ops with weights of their own. A
    turn may call an op several times: a line turns no more often than it runs, unless its turns are a comprehension's.
    One run with many calls is a library's loop (clipping, copying a state), or a part of a model.
    """
    most = next(iter(calls))
    if cost.inner:
        return most, calls[most], True
    turns = min(calls[most], cost.visits)
    if in_most_turns(cost.visits, calls[most]):
        return most, turns, True
    # A turn that looks up three elements has another op that it runs once; a part of a model has weights.
    once = min(calls, key=lambda op: abs(calls[op] - cost.visits))
    alike = in_most_turns(calls[once], cost.visits) and in_most_turns(cost.visits, calls[once])
    return (once, turns, True) if alike and turns >= LOOP_ITERATIONS and not weighted else (most, turns, False)


def _numbers_read(trace: Trace, steps: Steps, cost: LineCost, rows: Ints) -> float:
    """How many numbers a line reads from tensors one by one, many in each of its runs, in the median step; else 0.

    No model and no optimizer does that; what runs around a backward pass (hooks, other processes) is not the line's.
    """
    events = trace.events
    read = rows[[events.text(row) in _READ for row in rows.tolist()]]
    step = steps.step_of(events.start_ns[read])
    numbers = float(np.median(np.bincount(step[step >= 0], minlength=steps.count)))
    return 0.0 if cost.parts.get("backward") or numbers < LOOP_ITERATIONS * cost.visits else numbers


def _sees_one(trace: Trace, rows: Ints) -> bool:
    """Whether the linear layers among these ops see a single element: a batch of one, or none."""
    events = trace.events
    linear = rows[[events.text(row) == "aten::linear" for row in rows.tolist()]]
    known = [shapes(events.dims_table[dims])[:1] for dims in events.dims[linear].tolist() if dims >= 0]
    single = sum(bool(inputs) and bool(inputs[0]) and math.prod(inputs[0][:-1]) == 1 for inputs in known)
    return 2 * single > len(linear) > 0


def feeds(trace: Trace, steps: Steps, costs: LineCosts, rows: Ints, lines: set[int], turns: float) -> bool:
    """Whether these lines read a number in most turns, of which Python makes a tensor, or computes something."""
    mine = np.isin(costs.op_line, list(lines))
    often = [
        in_most_turns(np.count_nonzero(mine & trace.events.exactly(name)) / steps.count, turns)
        for name in ("aten::item", "aten::lift_fresh")
    ]
    return all(often) or (often[0] and feeds_back(trace, costs, rows, lines))


def derives(trace: Trace, steps: Steps, costs: LineCosts, lines: set[int], turns: float) -> bool:
    """Whether the nodes of the backward pass that these lines run are run again in most turns."""
    events = trace.events
    mine = np.isin(costs.op_line, list(lines)) & events.named(AUTOGRAD_NODE) & (events.sequence >= 0)
    nodes = np.flatnonzero(mine & (steps.step_of(events.start_ns) >= 0))
    if not len(nodes):
        return False
    passes = np.column_stack((steps.step_of(events.start_ns[nodes]), events.sequence[nodes]))
    _, node, runs = np.unique(passes, axis=0, return_inverse=True, return_counts=True)
    return in_most_turns(float(np.median(runs[node.ravel()])), turns)


def feeds_back(trace: Trace, costs: LineCosts, rows: Ints, lines: set[int]) -> bool:
    """Whether Python computes something from the numbers that these lines read: the next turn may need it.

    Then more time passes after a number is read than between most ops of the lines. (A policy that plays a game.)
    """
    events = trace.events
    mine = np.isin(costs.op_line[rows[:-1]], list(lines))
    gaps_ns = events.start_ns[rows[1:]] - events.end_ns[rows[:-1]]
    read = np.array([events.text(row) in _READ for row in rows[:-1].tolist()], bool)
    if not (mine & read).any() or not (mine & ~read).any():
        return False
    return bool(np.median(gaps_ns[mine & read]) > np.percentile(gaps_ns[mine & ~read], _MOST_GAPS))
