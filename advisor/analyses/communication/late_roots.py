"""Broadcasts that wait for the rank that sends: they carry little, and take far longer than what carries more."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.steps import Steps
from advisor.analyses.communication.collective_launches import Asked
from advisor.analyses.communication.collective_sizes import bytes_of
from advisor.analyses.communication.parallelism import Parallelism
from advisor.analyses.communication.part_updates import PartUpdates, broadcasts
from advisor.analyses.step.breakdown import Breakdown
from advisor.trace.events import Category, Events, Floats, Ints, Mask, Trace
from advisor.trace.intervals import starts_in, union

# Transfers that share a link, or a switch on the way, get a part of it each; ten that do so at once are none of a loop.
_TIMES = 10
# What most steps do not do is no part of a step.
_MOSTLY = 2
_NONE = np.empty(0, np.int64)
# accelerate iterates a DataLoader on its main process only, and broadcasts the batches (DataLoaderDispatcher).
_DISPATCHER = "accelerate/data_loader.py"
# A rank that reads its own batches.
_OWN_BATCHES = "enumerate(DataLoader)"


class LateRoots(Struct, frozen=True, eq=False):
    """Broadcasts of data-parallel ranks that begin long before the rank that sends; none without a device.

    rows, ops    the events of those that wait, and the ops that started them, in the same order
    calls        of them per step;  bytes: the largest, 0 for none
    needs_us     the longest that one of them needs: as the fastest collective of the same ranks with as many bytes
    waited_us    exposed time beyond that, µs per step;  usual_us: that of the median step, as the first one of a window
                 may begin with a device that has nothing else to do
    dispatched   accelerate's DataLoader asks for most of them
    reads        whether this rank also reads batches of its own with a DataLoader
    """

    rows: Ints
    ops: Ints
    calls: float
    bytes: float
    needs_us: float
    waited_us: float
    usual_us: float
    dispatched: bool
    reads: bool

    @classmethod
    def compute(
        cls,
        trace: Trace,
        steps: Steps,
        breakdown: Breakdown,
        asked: Asked,
        parallelism: Parallelism,
        parts: PartUpdates,
    ) -> LateRoots:
        """Those of this rank. By its bytes a broadcast takes no longer than an all-reduce, which sends them twice."""
        events, rows = trace.events, asked.rows
        own = bool(events.named(_OWN_BATCHES).any())
        sends = broadcasts(events, rows) & np.array([kind == "data" for kind in parallelism.of_row], np.bool_)
        sends &= ~parts.sent
        if not breakdown.on_device or not sends.any():
            return cls(_NONE, _NONE, 0.0, 0.0, 0.0, 0.0, 0.0, dispatched=False, reads=own)
        sizes = bytes_of(events, rows)
        needs_ns = _needed_ns(events, rows, sizes)
        late = sends & (events.dur_ns[rows] > _TIMES * needs_ns)
        if _MOSTLY * len(np.unique(asked.step[late])) < steps.count:
            return cls(_NONE, _NONE, 0.0, 0.0, 0.0, 0.0, 0.0, dispatched=False, reads=own)
        begun_ns, needed_from_ns = (
            events.start_ns[rows],
            events.end_ns[rows] - np.where(late, needs_ns, 0).astype(np.int64),
        )

        def waited_us(of: Mask) -> float:
            return breakdown.us_in("exposed_communication", union(begun_ns[of], needed_from_ns[of]))

        in_steps = [steps.count * waited_us(late & (asked.step == step)) for step in range(steps.count)]
        frames = np.flatnonzero(events.of(Category.PYTHON) & events.named(_DISPATCHER))
        within = starts_in(events.start_ns[asked.op[late & (asked.op >= 0)]], events.covered(frames))
        return cls(
            rows[late],
            asked.op[late],
            int(late.sum()) / steps.count,
            float(sizes[late].max()),
            float(needs_ns[late].max()) / 1e3,
            waited_us(late),
            float(np.median(in_steps)),
            dispatched=_MOSTLY * int(within.sum()) > int(late.sum()),
            reads=own,
        )


def _needed_ns(events: Events, rows: Ints, sizes: Floats) -> Floats:
    """The shortest time of a collective of the same ranks with as many bytes or more; infinite where not known."""
    groups = [(one.group, one.group_size) for one in events.collective_table] + [("", -1)]
    number = {group: at for at, group in enumerate(dict.fromkeys(groups))}
    group = np.array([number[one] for one in groups])[events.collective[rows]]
    needs = np.full(len(rows), np.inf)
    for one in np.unique(group):
        mine = np.flatnonzero((group == one) & ~np.isnan(sizes))
        mine = mine[np.argsort(-sizes[mine], kind="stable")]
        shortest = np.minimum.accumulate(events.dur_ns[rows[mine]])
        # Of several with as many bytes the last one knows the shortest of all.
        last = np.searchsorted(-sizes[mine], -sizes[mine], side="right") - 1
        needs[mine] = shortest[last]
    return needs
