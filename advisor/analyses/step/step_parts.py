"""The parts of a step whose length is known with and without the profiler: fetch, backward, optimizer, the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from advisor.analyses.base.links import Links
from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.scale import Scale, before_the_window, long_every
from advisor.analyses.base.steps import Steps
from advisor.analyses.step.input_wait import fetch_rows
from advisor.analyses.step.phases import backward_spans
from advisor.capture.record import RankRecord
from advisor.constants import constant
from advisor.trace.events import Category, Events, Floats, Ints, Mask, Trace
from advisor.trace.intervals import Intervals, intersect, starts_in, subtract, total

# The index of a part for each event; there are only a few parts.
PartOf = npt.NDArray[np.int8]

# As capture names them (StepTimes.unprofiled_parts_us); of nested ones the earlier here has the instant.
FETCH, BACKWARD, OPTIMIZER, REST = NAMES = ("fetch", "backward", "optimizer", "rest")
# Recording a row behind work that leaves nothing in the caches, relative to one in a loop of short ops; and from how
# many µs for each row on that is so.
_COLD, _COLD_AFTER_US = constant("profiler.cold_row").value, constant("profiler.cold_after_us").value
# Blocks of ten steps hold one period of what happens every few steps; their median leaves out bursts of other work.
_BLOCK, _LEAST_BLOCKS = 10, 6


class Part(Struct, frozen=True, eq=False):
    """One part of the loop's thread in W, per step.

    spans        where it lies in the trace
    recorded_us  its length in the profiled steps
    plain_us     its length in the un-profiled steps; recorded_us where nothing tells
    rows         ops recorded in it
    weight       what recording them costs, in ops of a loop of short ones (`row_weights`)
    """

    name: str
    spans: Intervals
    recorded_us: float
    plain_us: float
    rows: float
    weight: float

    @property
    def added_us(self) -> float:
        """What the profiler added for each unit of `weight`, if it added to nothing else; 0 where it added nothing."""
        added = self.recorded_us - self.plain_us
        return added / self.weight if added > 0 and self.weight else 0.0

    @property
    def row_us(self) -> float:
        """The same for each op."""
        return self.added_us * self.weight / self.rows if self.rows else 0.0


class StepParts(Struct, frozen=True, eq=False):
    """The parts of a step; disjoint. One part, W, where capture did not time them; else their union is W within steps.

    Between the `ProfilerStep#N` rows of two steps runs `torch.profiler.profile.step()`, which ends one row and begins
    the next (torch/profiler/profiler.py). Capture's times leave it out as well: it is no Python of the script, and
    un-profiled steps have none of it.

    part_of  for each event the index of the part that it starts in on the loop's thread, -1 elsewhere
    weights  for each op of the parts what recording it costs, in ops of a loop of short ones; 0 for other events
    """

    parts: tuple[Part, ...]
    part_of: PartOf
    weights: Floats

    @classmethod
    def compute(
        cls, trace: Trace, steps: Steps, scale: Scale, links: Links, nesting: Nesting, record: RankRecord | None
    ) -> StepParts:
        """The parts of this rank's step."""
        plain, recorded = _timed(record, steps)
        spans = _spans(trace, steps) if plain else {"step": steps.window}
        events = trace.events
        part_of = np.full(len(events), -1, np.int8)
        on_loop = (events.thread == steps.main_thread) & links.inside
        for index, of in enumerate(spans.values()):
            part_of[np.flatnonzero(on_loop & starts_in(events.start_ns, of))] = index
        ops = np.flatnonzero(events.of(Category.CPU_OP) & (part_of >= 0))
        weights = row_weights(events, ops, nesting)
        rows = np.bincount(part_of[ops], minlength=len(spans)) / steps.count
        weight = np.bincount(part_of[ops], weights[ops], minlength=len(spans)) / steps.count
        found = []
        for index, (name, of) in enumerate(spans.items()):
            seen_us = steps.per_step_us(total(of))
            # Both lengths come from the same listeners; their ratio is brought to what the trace shows.
            ratio = plain[name] / recorded[name] if plain and recorded[name] else 1.0
            if not plain and scale.unprofiled.median and scale.profiled.median:
                ratio = min(scale.unprofiled.median / scale.profiled.median, 1.0)
            found.append(Part(name, of, seen_us, seen_us * ratio, float(rows[index]), float(weight[index])))
        return cls(tuple(found), part_of, weights)


def row_weights(events: Events, ops: Ints, nesting: Nesting) -> Floats:
    """(n,) what recording each of these ops of one thread costs, in ops of a loop of short ones; 0 for other events.

    Among short ops the profiler's code and tables lie in the caches; work that takes long leaves little of them. The
    rows of an op and of those inside it cost alike, by how long they take: the time from its start to that of the next
    op, for each of them.
    """
    found = np.zeros(len(events))
    if not len(ops):
        return found
    outer = nesting.outer_op[ops]
    first = np.flatnonzero(np.diff(outer, prepend=-1))
    number = np.diff(np.append(first, len(ops)))
    starts = events.start_ns[ops[first]]
    last = max(int(events.end_ns[ops[-1]]), int(starts[-1]))
    each_us = np.diff(np.append(starts, last)) / number / 1e3
    cost = 1 + (_COLD - 1) * np.minimum(each_us / _COLD_AFTER_US, 1.0)
    found[ops] = np.repeat(cost, number)
    return found


def _timed(record: RankRecord | None, steps: Steps) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """(un-profiled, profiled) µs by part; empty where not known."""
    if record is None:
        return {}, {}
    timed = record.steps
    if set(timed.unprofiled_parts_us) != set(NAMES) or set(timed.profiled_parts_us) != set(NAMES):
        return {}, {}
    every = long_every(timed) or 0
    plain = {name: typical(before_the_window(times, timed), every) for name, times in timed.unprofiled_parts_us.items()}
    recorded = {name: float(np.mean(steps.kept(times))) for name, times in timed.profiled_parts_us.items()}
    return plain, recorded


def typical(times_us: Sequence[float], every: int = 0) -> float:
    """The median of the means of blocks of ten steps, shorter blocks where there are few steps.

    every: every so many steps one is far longer; a block holds one of them.
    """
    size = max(1, min(_BLOCK, len(times_us) // _LEAST_BLOCKS))
    if 0 < every <= len(times_us):
        size = every
    whole = np.asarray(times_us[: len(times_us) // size * size], float)
    return float(np.median(whole.reshape(-1, size).mean(axis=1)))


def _spans(trace: Trace, steps: Steps) -> dict[str, Intervals]:
    """Where the parts lie in W."""
    events = trace.events
    on_loop = events.thread == steps.main_thread

    def of(rows: Mask) -> Intervals:
        return events.covered(rows)

    updates = events.of(Category.ANNOTATION, Category.CPU_OP) & events.named("Optimizer.step#")
    known = {
        FETCH: of(fetch_rows(events) & on_loop),
        BACKWARD: backward_spans(trace, steps),
        OPTIMIZER: of(updates & on_loop),
    }
    left, found = steps.window, {}
    if all(label.startswith("ProfilerStep#") for label in steps.labels):
        left = intersect(left, steps.spans)
    for name, spans in known.items():
        found[name] = intersect(left, spans)
        left = subtract(left, spans)
    return found | {REST: left}
