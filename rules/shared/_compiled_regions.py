"""Compiled code in many regions, and what the host does around them."""

from __future__ import annotations

import numpy as np

from advisor.api import (
    Category,
    Events,
    Intervals,
    Ints,
    Price,
    RowMask,
    StepOps,
    Steps,
    Trace,
    intersect,
    subtract,
    times_gone_through,
    union,
)

LOOKUP, _REGION = "TorchDynamo Cache Lookup", "Torch-Compiled Region"
# The same compiled code twice in a window may be a model in two steps.
_REPEATED = 4
# Attention projects at least twice and a feed-forward part multiplies twice; layers multiply once.
_PRODUCTS_OF_A_BLOCK = 3
_PRODUCTS = (
    *("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::convolution", "mkl::_mkl_linear"),
    *("aten::_scaled_mm", "mkldnn::_linear_pointwise", "mkldnn::_convolution_pointwise"),
)
# Longer than that is not the way from one piece to the next but something that somebody wrote between them.
_LONGEST_NS = 200_000
# Two or three regions are a model and its loss, or a model with one break.
LEAST_PIECES = 4.0


# Of the nodes of a penalty on gradients few are gone through again; of forces that are trained most are.
_AGAIN = 0.25


def differentiated_again(ops: StepOps) -> bool:
    """Whether gradients are differentiated, or a graph is gone through several times, in most of the step.

    `torch.compile` raises "does not currently support double backward" then (torch/_functorch/_aot_autograd).
    """
    rows, times = times_gone_through(ops.events, ops.steps)
    return len(rows) > 0 and float((times > 1).mean()) >= _AGAIN


def compiling(events: Events) -> Intervals:
    """When torch.compile traces, lowers and compiles."""
    return events.covered(events.of(Category.ANNOTATION, Category.CPU_OP) & events.named("(dynamo_timed)"))


def pieces_of(price: Price, least: float = LEAST_PIECES) -> tuple[float, Intervals] | None:
    """Regions per step, and the time around them that one region would have once; None where they are few or blocks."""
    trace, steps = price.ops.trace, price.ops.steps
    events = trace.events
    if not events.exactly(LOOKUP).any():
        return None
    mine = (events.thread == steps.main_thread) & (steps.step_of(events.start_ns) >= 0)
    lookups, regions = events.exactly(LOOKUP) & mine, events.named(_REGION) & mine & events.of(Category.CPU_OP)
    pieces = float(regions.sum()) / steps.count
    if pieces < least or _are_blocks(price, np.flatnonzero(regions)):
        return None
    spans = _around(trace, steps, lookups, regions)
    if price.on_device:
        calls = _calls(price, np.flatnonzero(regions))
        spans = union(np.concatenate((spans[:, 0], calls[:, 0])), np.concatenate((spans[:, 1], calls[:, 1])))
    return pieces, spans


def _calls(price: Price, regions: Ints) -> Intervals:
    """From the start of each region to its first launch, and from its last launch to its end: one region has one."""
    events, launch = price.ops.events, price.ops.links.launch
    called = np.unique(launch[launch >= 0])
    called = called[events.thread[called] == price.ops.steps.main_thread]
    called = called[np.argsort(events.start_ns[called], kind="stable")]
    start, end = events.start_ns[regions], events.end_ns[regions]
    first = np.searchsorted(events.start_ns[called], start)
    last = np.searchsorted(events.start_ns[called], end) - 1
    some = first <= last
    start, end, first, last = start[some], end[some], called[first[some]], called[last[some]]
    spans = np.column_stack((np.append(start, events.end_ns[last]), np.append(events.start_ns[first], end)))
    spans = spans[(spans[:, 1] > spans[:, 0]) & (spans[:, 1] - spans[:, 0] <= _LONGEST_NS)]
    return intersect(union(spans[:, 0], spans[:, 1]), price.ops.steps.window)


def _are_blocks(price: Price, regions: Ints) -> bool:
    """Whether most regions run the same compiled code, with several products in each: a block of a model, no layer."""
    events, nesting = price.ops.events, price.ops.nesting
    names, times = np.unique(events.name[regions], return_counts=True)
    blocks = regions[np.isin(events.name[regions], names[times >= _REPEATED])]
    if 2 * len(blocks) < len(regions):
        return False
    products = np.flatnonzero(events.of(Category.CPU_OP) & events.exactly(*_PRODUCTS))
    inside = np.zeros(len(events), np.bool_)
    inside[blocks] = True
    held = nesting.ancestor_of(products, inside)
    each = np.bincount(np.searchsorted(blocks, held[held >= 0]), minlength=len(blocks))
    return bool(np.median(each) >= _PRODUCTS_OF_A_BLOCK)


def _around(trace: Trace, steps: Steps, lookups: RowMask, regions: RowMask) -> Intervals:
    """Look-ups outside of regions, and the ways from a region to the next look-up in which no op runs."""
    events = trace.events
    checks = events.covered(lookups)
    inside = events.covered(regions)
    compiled = union(np.concatenate((checks[:, 0], inside[:, 0])), np.concatenate((checks[:, 1], inside[:, 1])))
    ways = np.column_stack((compiled[:-1, 1], compiled[1:, 0]))
    same = steps.step_of(ways[:, 0]) == steps.step_of(ways[:, 1])
    ways = ways[same & (ways[:, 1] - ways[:, 0] <= _LONGEST_NS) & (ways[:, 1] > ways[:, 0])]
    ops = events.of(Category.CPU_OP) & (events.thread == steps.main_thread) & ~lookups & ~regions
    busy = events.covered(ops)
    idle = subtract(ways, busy)
    both = np.concatenate((subtract(checks, inside), idle))
    return intersect(union(both[:, 0], both[:, 1]), steps.window)
