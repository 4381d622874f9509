"""What work that streams through memory evicts from the caches of a host, and the rest of the step fetches again."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from advisor.analyses.base.step_ops import StepOps
from advisor.analyses.step.breakdown import Breakdown
from advisor.analyses.work.op_costs import alike, is_known, work_of
from advisor.analyses.work.op_work import NUMBER_BYTES, element_counts
from advisor.calibration.calibration import Calibration
from advisor.computed import Missing
from advisor.constants import constant
from advisor.trace.events import Category, Events, Floats, Ints, Mask
from advisor.trace.numbers import first_places
from advisor.trace.op_names import AUTOGRAD_NODE

Shares = Floats
# The instructions and objects that any step finds in the caches: of torch, its libraries and the interpreter.
_CODE_BYTES = constant("memory.code_bytes").value
_REFILLED = constant("memory.refilled_share").value
# Tensors of a model lie in many pages, each of which has to be found again, too.
_TIMES = constant("memory.fetched_times").high
# Python and tensors of single samples go through the caches that are a core's own.
_OWN_BYTES = constant("memory.core_cache_bytes").value
# Ops that write one tensor, and ops on lists of tensors: each tensor of them is read or written.
_FILLS, _OF_LISTS = frozenset(("aten::fill_", "aten::zero_")), ("aten::_foreach_", "aten::_fused_")


class Evicted(Struct, frozen=True, eq=False):
    """Bytes that the ops of a step read and write, and what it takes to fetch from memory what they evict.

    A byte that is written or read evicts at most one that the rest of the step uses. What a cache did hold is not
    known, so all of this is the most that can be.

    bytes   (n,) of each event, inputs and results; 0 for ops within such an op, views, and where sizes are not known
    kind    (n,) the same number for the same op on tensors of the same sizes
    kept    which of their results live on until the backward pass; memory of others is used again by the next of a kind
    steps   profiled steps;  cache_bytes: of the last cache;  bytes_per_us: at which one thread fetches it at least
    """

    bytes: Shares
    kind: Ints
    kept: Mask
    steps: int
    cache_bytes: float
    bytes_per_us: float

    def moved_bytes(self, shares: Shares) -> float:
        """Bytes of distinct memory, per step, that these shares of the ops go through."""
        moved = self.bytes * shares
        others = np.flatnonzero(~self.kept & (moved > 0))
        largest = others[np.lexsort((-moved[others], self.kind[others]))]
        first = np.flatnonzero(np.diff(self.kind[largest], prepend=-1))
        return float(moved[self.kept].sum()) / max(self.steps, 1) + float(moved[largest[first]].sum())

    def fetched_us(self, gone: Shares, rest_us: float) -> float:
        """The most that the rest of a step waits for memory after these shares of the ops, un-profiled µs."""
        found = self._found_bytes(1 - gone)
        return min(min(self.moved_bytes(gone), found) / self.bytes_per_us, _REFILLED * rest_us)

    def refill_us(self, rest_us: float) -> float:
        """The same after Python and work on single samples, which evict what lies in a core's own caches."""
        found = min(self._found_bytes(np.ones(len(self.bytes))), _OWN_BYTES)
        return min(found / self.bytes_per_us, _REFILLED * max(rest_us, 0.0))

    def _found_bytes(self, stays: Shares) -> float:
        """The most that these shares of the ops find in the caches unless other work evicts it.

        What is used again is moved at least twice. A step that uses more than the last cache holds evicts its own data.
        """
        used = self.moved_bytes(stays) / 2
        return max(min(used, 2 * self.cache_bytes - used), 0.0) + _CODE_BYTES

    @classmethod
    def compute(cls, ops: StepOps, breakdown: Breakdown, calibration: Calibration) -> Evicted:
        """The traffic of the profiled steps' ops; Missing where the step is that of a device."""
        if breakdown.on_device:
            raise Missing("ops of a device go through no cache of the host")
        events = ops.events
        rows = np.flatnonzero(events.of(Category.CPU_OP) & ops.links.inside & (events.dims >= 0))
        kind = np.full(len(events), -1, np.int64)
        kind[rows] = alike([column[rows] for column in (events.name, events.dims, events.dtypes, events.values)])
        moved = bytes_by_kind(ops, kind, _moved_bytes)
        rate = calibration.core_memory_gbs
        # The low end of the table's is a rate of small pieces.
        bytes_per_us = 1e3 * (rate.low if rate.measured else rate.high) / _TIMES
        return cls(moved, kind, _kept(ops), ops.steps.count, 1e6 * calibration.last_cache_mb.high, bytes_per_us)


def bytes_by_kind(ops: StepOps, kind: Ints, of: Callable[[Events, int], float]) -> Floats:
    """(n,) what `of` says of each event that has a kind, asked once of each; 0 for ops within one that has some."""
    rows = np.flatnonzero(kind >= 0)
    member = kind[rows]
    first = first_places(member, int(member.max(initial=-1)) + 1)
    found = np.zeros(len(kind))
    found[rows] = np.array([of(ops.events, int(row)) for row in rows[first]])[member]
    around = ops.nesting.parent
    found[ops.nesting.within(found > 0)[around] & (around >= 0)] = 0
    return found


def _moved_bytes(events: Events, row: int) -> float:
    """Bytes of the inputs and results of an op; 0 where they are not known."""
    name = events.text(row)
    if is_known(name):
        found = work_of(events, row)
        return found.bytes if found else 0.0
    numbers = element_counts(events.dims_table[events.dims[row]])
    if name in _FILLS:
        return float(NUMBER_BYTES * numbers[0]) if numbers else 0.0
    return float(NUMBER_BYTES * sum(numbers)) if name.startswith(_OF_LISTS) else 0.0


def _kept(ops: StepOps) -> Mask:
    """Ops of the forward pass within one that recorded a node of the backward pass, which may need their results."""
    events, outer = ops.events, ops.nesting.outer_op
    nodes = events.named(AUTOGRAD_NODE) & (events.sequence >= 0)
    recorded = np.isin(events.sequence, events.sequence[nodes]) & ~nodes
    kept: Mask = recorded[outer] & (outer >= 0)
    return kept
