"""Optimizers cut over ranks: each rank updates its part of the weights, and broadcasts it within or behind the step."""

from __future__ import annotations

import json

import numpy as np
from msgspec import Struct

from advisor.analyses.base.classify import communication_rows
from advisor.analyses.base.optimizer_closures import closure_spans
from advisor.analyses.base.step_ops import StepOps
from advisor.analyses.communication.collective_launches import Asked
from advisor.analyses.communication.collective_sizes import bytes_of
from advisor.analyses.communication.parallelism import Parallelism
from advisor.analyses.step.breakdown import Breakdown
from advisor.hardware import lookup
from advisor.trace.events import Category, Events, Ints, Mask
from advisor.trace.intervals import starts_in

_STEP = "Optimizer.step#"
# torch.distributed.optim.ZeroRedundancyOptimizer, whose step holds that of the optimizer of its part.
_CUT = "ZeroRedundancyOptimizer"
# Whoever updates a weight reads it and its gradient and writes it; Adam does so with two states as well.
_MOVES = {"Adam": 7, "AdamW": 7}
_LEAST_MOVES = 3
# What caches hold is updated quicker than memory allows: so much is far more than any of them holds, bytes a step.
_BEYOND_CACHES = 256 << 20


class PartUpdates(Struct, frozen=True, eq=False):
    """Broadcasts of weights that each rank has updated for all; none without a device.

    sent    which rows of `Asked` they are
    name    class of the optimizer that is known for it, "" where the trace names none
    update  kernels of this rank's update
    """

    sent: Mask
    name: str
    update: Ints

    @classmethod
    def compute(cls, ops: StepOps, breakdown: Breakdown, asked: Asked, parallelism: Parallelism) -> PartUpdates:
        """Those of this rank, among broadcasts for nothing else that is known (buffers, shards of a model).

        Where no row names such an optimizer, the broadcasts must come from several ranks, or bring more weights than
        this rank's update can have gone over.
        """
        events = ops.events
        none = cls(np.zeros(len(asked.rows), np.bool_), "", np.empty(0, np.int64))
        steps = np.flatnonzero(events.of(Category.ANNOTATION, Category.CPU_OP) & events.named(_STEP) & ops.links.inside)
        mine = broadcasts(events, asked.rows) & events.named("c10d::")[np.maximum(asked.op, 0)] & (asked.op >= 0)
        mine &= np.array([kind == "data" for kind in parallelism.of_row], np.bool_)
        if not breakdown.on_device or not mine.any() or not len(steps):
            return none
        closures = closure_spans(events)
        mine &= ~starts_in(events.start_ns[np.maximum(asked.op, 0)], closures)
        is_step, named = np.zeros(len(events), np.bool_), np.zeros(len(events), np.bool_)
        is_step[steps] = True
        named[steps[events.named(_CUT)[steps]]] = True
        within = mine & (ops.nesting.ancestor_of(asked.op, is_step) >= 0)
        by_name = mine & (ops.nesting.ancestor_of(asked.op, named) >= 0)
        works = ops.launched(steps)
        works = works[events.of(Category.KERNEL)[works] & ~communication_rows(events)[works]]
        works = works[~starts_in(events.start_ns[ops.links.launch[works]], closures)]
        if by_name.any():
            return cls(by_name, _CUT, works)
        sent = within | (mine & np.isin(asked.op, _behind(ops, steps, asked.op[mine])))
        if _several_roots(ops, asked.op[sent]) or _more_than_updated(ops, asked.rows[sent], works, steps):
            return cls(sent, "", works)
        return none


def broadcasts(events: Events, rows: Ints) -> Mask:
    """Which of these say that they are a broadcast."""
    said = np.array(["broadcast" in one.name.lower() for one in events.collective_table] + [False], np.bool_)
    found: Mask = said[events.collective[rows]]  # -1, where a row says nothing, is the last
    return found


def _behind(ops: StepOps, steps: Ints, sends: Ints) -> Ints:
    """Those of these ops that follow an optimizer's step with no other op of the loop's thread in between."""
    events, outer = ops.events, ops.outermost
    is_send, found = np.isin(outer, sends), []
    for end in events.end_ns[steps].tolist():
        at = int(np.searchsorted(events.start_ns[outer], end))
        while at < len(outer) and is_send[at]:
            found.append(int(outer[at]))
            at += 1
    return np.array(found, np.int64)


def _several_roots(ops: StepOps, sends: Ints) -> bool:
    """Whether ops say that more than one rank sends: by their third argument, the root in its process group."""
    events, roots = ops.events, set()
    for text in np.unique(events.values[sends[events.values[sends] >= 0]]).tolist():
        try:
            roots.add(int(json.loads(events.values_table[text])[2]))
        except (ValueError, IndexError, TypeError):
            continue
    return len(roots) > 1


def _more_than_updated(ops: StepOps, rows: Ints, works: Ints, steps: Ints) -> bool:
    """Whether the kernels of the update end sooner than the device's memory lets them go over all that is sent."""
    hardware = lookup(ops.device.name, ops.device.capability)
    if hardware is None or not hardware.bandwidth_gbs or not len(works) or not len(rows):
        return False
    sent = float(np.nan_to_num(bytes_of(ops.events, rows)).sum())
    names = {ops.events.text(row).removeprefix(_STEP).partition(".")[0] for row in steps.tolist()}
    moves = min(_MOVES.get(name, _LEAST_MOVES) for name in names)
    went_over = float(ops.events.dur_ns[works].sum()) * hardware.bandwidth_gbs
    return sent > _BEYOND_CACHES * ops.steps.count and went_over < moves * sent
