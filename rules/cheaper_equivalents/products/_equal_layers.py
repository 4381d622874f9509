"""Equal layers that run one after the other: the time they take, and the work in it that one op for all has as well."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from advisor.api import (
    CallSites,
    Category,
    EqualLayers,
    Intervals,
    LineCosts,
    Missing,
    ObservedOps,
    Price,
    Source,
    StepOps,
    backward_of,
    backward_passes,
    constant,
    union,
    work_of,
)

from .._equivalent import Ints
from .._slice_writes import WRITE

# Between a write into a slice and the number of its node lie those of the views that autograd makes anew.
_NUMBERS = 2
# What a joined product takes of its arithmetic at the rate of large matrices.
_JOINED = constant("layers.joined").range
# Products that took so many times what explains them waited for a core, and so did the calls that would be saved.
_BUSY = constant("calls.busy_times").value
# Nodes that give a part of a gradient the form of the whole: one op for all layers has none of them.
_PARTS = ("SelectBackward", "SliceBackward", "UnbindBackward", "CopySlices")


class LayersInTurn(Struct, frozen=True, eq=False):
    """Groups of equal layers that one line of the script runs.

    layers    of a group, all of them alike in the profiled steps;  groups: so many a step
    rows      the layers' ops
    spans     the ops of all groups with what Python runs between them, and their part of the backward pass
    kept      share of the ops in these spans that is left: one for all that are alike
    work_us   (least, most) µs of the un-profiled step that the arithmetic of all takes in one op
    same_input  whether all read one tensor, and not parts of it
    """

    layers: int
    groups: float
    rows: Ints
    spans: Intervals
    kept: float
    work_us: tuple[float, float]
    same_input: bool


def layers_in_turn(
    price: Price, observed: ObservedOps, groups: Sequence[EqualLayers], *, few_samples: bool = False
) -> LayersInTurn | None:
    """What these groups take in the profiled steps; None where the steps did not run them.

    few_samples: the layers share their weights, and each is called on few samples. Products are then slow without
    waiting, as they read the weights for little work; convolutions stay as long as recorded, whatever their work is,
    and so does what interrupted them.
    """
    ops, count = price.ops, price.ops.steps.count
    layers = rows_at(observed, [at for one in groups for at in one.layers])
    joined = [at for one in groups for each in one.ops for at in each]
    work = np.unique(np.concatenate((layers, rows_at(observed, joined))))
    if not len(layers):
        return None
    forward = np.unique(np.concatenate((work, rows_at(observed, [at for one in groups for at in one.views]))))
    nodes = _nodes(ops, forward)
    alike = sum(1 + len(one.ops) for one in groups)
    return LayersInTurn(
        layers=max(len(one.layers) for one in groups),
        groups=len(groups) * len(layers) / (sum(len(one.layers) for one in groups) * count),
        rows=layers,
        spans=_spans(ops, np.concatenate((forward, nodes))),
        kept=alike / (sum(len(one.layers) for one in groups) + len(joined)),
        work_us=_work_us(price, np.concatenate((work, nodes[~ops.events.named(*_PARTS)[nodes]])), few_samples),
        same_input=all(one.same_input for one in groups),
    )


def rows_at(observed: ObservedOps, ats: Sequence[int]) -> Ints:
    """Events of these places of the observed step in all profiled steps that have them."""
    found = [rows[np.asarray(ats, np.int64)] for rows in observed.places] if len(ats) else []
    rows = np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)
    return rows[rows >= 0]


def _nodes(ops: StepOps, forward: Ints) -> Ints:
    """Engine calls of these ops in the backward pass, with those that store the gradients of their weights."""
    events = ops.events
    found = backward_of(events, forward)
    writes = forward[events.exactly("aten::copy_")[forward]]
    numbers = (events.sequence[writes][:, None] + np.arange(_NUMBERS + 1)).ravel()
    found = np.union1d(
        found,
        np.flatnonzero(events.named(backward_passes.NODE) & events.named(WRITE) & np.isin(events.sequence, numbers)),
    )
    calls = np.flatnonzero(
        (events.named(backward_passes.NODE) | events.exactly(backward_passes.STORES)) & ops.nesting.outermost
    )
    stores = np.isin(calls, ops.nesting.outer_op[events.exactly(backward_passes.STORES)])
    mine = np.isin(calls, found)
    for at in np.flatnonzero(stores).tolist():
        mine[at] |= at > 0 and mine[at - 1]
    return calls[mine]


def _spans(ops: StepOps, rows: Ints) -> Intervals:
    """From the first to the last of the rows that follow each other in a step, no other op of the thread between."""
    start_ns, end_ns = ops.events.start_ns, ops.events.end_ns
    at = np.flatnonzero(np.isin(ops.outermost, rows))
    mine = ops.outermost[at]
    ends = np.flatnonzero((np.diff(at) > 1) | (np.diff(ops.steps.step_of(start_ns[mine])) != 0))
    return union(start_ns[mine[np.append(0, ends + 1)]], end_ns[mine[np.append(ends, len(mine) - 1)]])


def _work_us(price: Price, rows: Ints, few_samples: bool) -> tuple[float, float]:
    """(least, most) µs per step of what the ops in these rows do besides being called, in one op for all.

    Products at the rate of this machine (least: of all cores; most: of one), times what joined ones were measured to
    take; never more than recorded: the median of their form, beyond a call on a few numbers. Other ops: the fastest,
    and the median, of their form.
    """
    ops, events, known = price.ops, price.ops.events, price.added.calibration
    leaves = _leaves(ops, rows)
    held = _held(ops, leaves)
    call, product = known.op_call_us.low, (known.product_call_us or known.op_call_us).low
    slow, quick = known.core_fp32_gflops, known.fp32_gflops or known.core_fp32_gflops
    by_form: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in leaves.tolist():
        by_form[int(events.name[row]), int(events.dims[row])].append(row)
    least = most = taken = explained = 0.0
    for same in by_form.values():
        took_us = events.dur_ns[same] / 1e3
        work = work_of(events, same[0])
        flops = work.flops if work else 0.0
        bare = (product if flops else call) + known.profiler_row_us.low * float(np.median(held[same]))
        median = float(np.median(took_us))
        typical = max((float(took_us.mean()) if few_samples else median) - bare, 0.0)
        best = _JOINED[0] * flops / (1e3 * quick.high) if flops else max(float(took_us.min()) - bare, 0.0)
        stays = not flops or (few_samples and "convolution" in events.text(same[0]))
        worst = typical if stays else _JOINED[1] * flops / (1e3 * slow.low)
        least += len(same) * min(best, typical)
        most += len(same) * min(worst, typical)
        if work and events.text(same[0]) in _PRODUCTS:  # a convolution's call takes far longer than a small one's work
            taken += float(took_us.sum())
            # Thin products read and write more than they multiply.
            moved = work.bytes / (1e3 * known.core_memory_gbs.low)
            explained += len(same) * (median if few_samples else max(flops / (1e3 * slow.low), moved) + bare)
    if taken * price.scale.factor > _BUSY * explained > 0:
        raise Missing(
            f"matrix products took {taken * price.scale.factor / explained:.0f} times as long as their work "
            "explains: the machine was busy with other work; run again when it is idle"
        )
    return least / ops.steps.count, most / ops.steps.count


def _leaves(ops: StepOps, rows: Ints) -> Ints:
    """The ops inside these rows, and of these rows themselves, that hold no other op; products with what is inside."""
    events, nesting = ops.events, ops.nesting
    chosen = np.zeros(len(events), bool)
    chosen[rows] = True
    counted = events.of(Category.CPU_OP) & (chosen | (nesting.ancestor(chosen) >= 0))
    counted &= ~events.named(backward_passes.NODE, "torch::autograd::")
    holds = np.zeros(len(events), bool)
    holds[nesting.parent[events.of(Category.CPU_OP) & (nesting.parent >= 0)]] = True
    whole = np.array([name in _WHOLE for name in events.names], bool)[events.name]
    rows = np.flatnonzero(counted & (whole | ~holds))
    return rows[nesting.ancestor_of(nesting.parent[rows], whole) < 0]


def _held(ops: StepOps, rows: Ints) -> Ints:
    """By row of the trace how many ops these rows hold, themselves included: the profiler recorded each."""
    chosen = np.zeros(len(ops.events), bool)
    chosen[rows] = True
    around = ops.nesting.ancestor(chosen)[ops.events.of(Category.CPU_OP)]
    return np.bincount(around[around >= 0], minlength=len(ops.events))


_PRODUCTS = frozenset(("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"))
_ATTENTION = "aten::_scaled_dot_product_flash_attention_for_cpu"
# Ops whose work is known, and that run others for the form of what they read.
_WHOLE = _PRODUCTS | {"aten::convolution", "aten::convolution_backward", _ATTENTION, f"{_ATTENTION}_backward"}


def loop_line(sites: CallSites, costs: LineCosts, rows: Ints, layers: int, steps: int) -> Source | None:
    """The statement that runs all layers of a group: the loop's line that calls them, or a comprehension's.

    rows: ops of the layers;  layers: of a group.
    """
    stack = next((found for row in rows.tolist() if (found := sites.op_stack(row))), None)
    if stack is None:
        return None
    lines = {(line.source.file, line.source.line): line for line in costs.lines}
    for number, at in enumerate(stack):
        line = lines.get(at)
        if line is None or len(rows) / steps < layers * line.visits:
            continue
        # A line that does it all in one run: in a comprehension of its own, or by a call of what loops below it.
        chosen = at if line.inner or not number else stack[number - 1]
        return sites.sources.get(chosen)
    return sites.sources.get(stack[0])
