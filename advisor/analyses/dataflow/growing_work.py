"""Calls of ops whose work on the device takes longer with every step, by about the same time: what is kept grows."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.step_ops import StepOps
from advisor.analyses.dataflow.growing_ops import LEAST_STEPS, PRODUCTS, GrowingOps
from advisor.trace.events import Ints, Mask
from advisor.trace.numbers import numbered

# Kernels vary by some percent: so far from a straight line, as a part of the whole rise, a step may be.
_NEAR = 0.1


class GrowingWork(Struct, frozen=True, eq=False):
    """Outermost ops whose device time rises from each profiled step to the next.

    None where that of a matrix product or attention rises, also within a compiled region: then batches or sequences
    grow. For traces without shapes, and for ops of lists of tensors, whose shapes are not recorded.

    name     of the op whose rise is largest; rows: its calls that rise, one or more in each step
    each_us  their device time in each step, first to last, as recorded
    """

    name: str
    rows: Ints
    each_us: tuple[float, ...]

    @classmethod
    def compute(cls, ops: StepOps) -> GrowingWork:
        """The op that rises most; empty where none does, or there are fewer than five steps or no device work."""
        nothing = found = cls("", np.zeros(0, np.int64), ())
        if ops.steps.count < LEAST_STEPS:
            return nothing
        calls, took_ns, step = _calls(ops)
        names, products = ops.events.name[calls], _products(ops)[calls]
        for name in np.unique(names).tolist():
            mine = names == name
            text = ops.events.names[name]
            if (np.bincount(step[mine], minlength=ops.steps.count) != mine.sum() // ops.steps.count).any():
                continue  # not as many calls in each step: which is which is not known
            each_ns = took_ns[mine].reshape(ops.steps.count, -1)
            more = np.diff(each_ns, axis=0)
            if products[mine].any() and (more.sum(axis=1) > 0).all():
                return nothing
            rising = (more > 0).all(axis=0) & _straight(each_ns)
            each_us = tuple((each_ns[:, rising].sum(axis=1) / 1e3).tolist())
            if rising.any() and _rise(each_us) > _rise(found.each_us):
                found = cls(text, calls[mine].reshape(ops.steps.count, -1)[:, rising].ravel(), each_us)
        return found


class Growth(Struct, frozen=True, eq=False):
    """What grows from step to step. ops: by sizes or calls, None where it cannot be told; work: by times of kernels."""

    ops: GrowingOps | None
    work: GrowingWork

    @classmethod
    def compute(cls, ops: GrowingOps | None, work: GrowingWork) -> Growth:
        """Of this rank."""
        return cls(ops, work)


def _products(ops: StepOps) -> Mask:
    """Which outermost ops are matrix products or attention, or call some, as compiled regions do."""
    events = ops.events
    found = np.zeros(len(events), bool)
    found[ops.nesting.outer_op[np.flatnonzero(events.rows_with(events.names_where(_is_product)))]] = True
    return found


def _is_product(name: str) -> bool:
    return name.startswith(PRODUCTS) or "attention" in name


def _straight(each_ns: Ints) -> Mask:
    """Which calls (columns) take times in these steps (rows) that lie on a straight line."""
    at = np.arange(len(each_ns)) - (len(each_ns) - 1) / 2
    slope = at @ each_ns / (at @ at)
    apart = abs(each_ns - each_ns.mean(axis=0) - at[:, None] * slope).max(axis=0)
    straight: Mask = apart <= _NEAR * slope * (len(each_ns) - 1)
    return straight


def _rise(each_us: tuple[float, ...]) -> float:
    return each_us[-1] - each_us[0] if each_us else 0.0


def _calls(ops: StepOps) -> tuple[Ints, Ints, Ints]:
    """Outermost ops that launched device work in order of step and start; what that took, ns; their steps."""
    launch = ops.links.launch
    works = ops.links.works
    outer = ops.nesting.outer_op[launch[works]]
    calls, at = numbered(outer[outer >= 0])
    took_ns = np.bincount(at, ops.events.dur_ns[works[outer >= 0]], len(calls)).astype(np.int64)
    step = ops.links.step[calls]
    order = np.lexsort((ops.events.start_ns[calls], step))
    order = order[step[order] >= 0]
    return calls[order].astype(np.int64), took_ns[order], step[order].astype(np.int64)
