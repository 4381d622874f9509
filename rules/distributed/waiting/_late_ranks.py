"""What collectives take that their bytes do not explain: this rank is in them, and another has not come yet.

A kernel of NCCL lasts from when this rank joins until the last one has, and everything is sent. All ranks of a process
group share one ring or tree (NCCL, "Collective Operations": each is synchronous between ranks), so that more bytes of
one kind never take less: whatever a collective takes beyond a larger one of its process group is no sending.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.api import Finding, Fix, Intervals, Ints, Price, Saving, duration, edits, intersect, total, union

from ...shared._words import count
from ._unequal_work import LENGTHS, UnequalWork, unequal_work

# Two transfers that share a link get half of it each: a collective may take up to twice as long as the fastest of its
# size beside another group's, or beside a copy to the host. What takes longer waits for a rank: the fastest began when
# all others were there, or nearly.
_SHARED = 2
# Of fewer collectives of one size perhaps all waited.
_ENOUGH = 4
# Steps as long as the median one, within the tenth by which steps that are alike differ: what one waits more, it
# computes less, so that the median of waits is that of no step.
_ALIKE = 1.1
# Each rank sends as much as any other in these; in an exchange one may have most to send.
_EVEN = re.compile(r"all_?reduce|reduce_?scatter|all_?gather", re.IGNORECASE)
_HOW = (
    "low: nothing, if what makes the other rank slow cannot be changed; high: no rank is late, and each collective "
    "sends at the best rate of its kind"
)
FIND_IT = Fix(
    "Find the rank that joins late: record all ranks, and analyse their traces together",
    "exact",
    "advisor analyze rank0.pt.trace.json",
    "advisor analyze traces/  # of all ranks; then what one does alone: logging, evaluation, checkpoints, slower input",
)


class _Alike(Struct, frozen=True, eq=False):
    """Collectives of one kind, process group and size of which some take longer than sending explains.

    rows      those that do;  least_ns: what sending takes at most
    best_ns   what it takes at least, at the best rate of all sizes
    times     how many times the size the collective has that shows it; 1 for one of their own
    """

    rows: Ints
    least_ns: float
    best_ns: float
    times: float


class Late(Struct, frozen=True, eq=False):
    """The part of a communication in which a rank is awaited.

    us        exposed µs per step of a device that sending does not explain, at least
    usual_us  the same in the median step, on the scale of `step_time_us`; 0 where step times are given as the mean
    alike     by size, longest first
    """

    us: float
    usual_us: float
    alike: tuple[_Alike, ...]

    @classmethod
    def of(cls, price: Price, rows: Ints) -> Late:
        """Of these collectives."""
        events, steps = price.ops.events, price.ops.steps
        rows = rows[price.ops.links.inside[rows]]
        stated = events.collective[rows] >= 0
        groups = (*_by_kind(price, rows[stated]), *_by_place(price, rows[~stated]))
        alike = [one for group, sizes in groups for one in _longer(group, sizes, events.dur_ns[group])]
        if not alike:
            return cls(0.0, 0.0, ())
        late, spans = _waits(price, alike)
        part = price.breakdown.intervals[price.breakdown.talking]
        late_ns = total(intersect(union(spans[:, 0], spans[:, 1]), part))
        usual_us = _usual_us(price, late, spans, late_ns)
        alike.sort(key=lambda one: -float((events.dur_ns[one.rows] - one.least_ns).sum()))
        return cls(steps.of_window_us(late_ns) * price.ops.longer, usual_us, tuple(alike))

    def said(self, price: Price, exposed_us: float, unequal: UnequalWork | None) -> str:
        """A sentence about it.  unequal: if batches of unequal work are why."""
        late, took = duration(price.scale.scaled(self.us)), price.ops.events.dur_ns
        if unequal:
            return unequal.said(late)
        first = self.alike[0]
        if first.times == 1:
            stated = price.ops.events.collective[first.rows[0]] >= 0
            shown = f"Some take far longer than others {'of their size' if stated else 'at their place in a step'}"
        else:
            usual_us, least_us = float(np.median(took[first.rows])) / 1e3, first.least_ns / 1e3
            shown = (
                f"{count(len(first.rows) / price.ops.steps.count)} of them take {duration(usual_us)} each, and one of "
                f"{count(first.times)} times their size {duration(least_us)}"
            )
        usual = (
            f", {duration(self.usual_us)} in the median step" if self.usual_us > price.scale.scaled(exposed_us) else ""
        )
        return f" {shown}: at least {late} of it is waiting for a rank that joins late{usual}."

    def saving(self, price: Price, exposed_us: float) -> Saving | None:
        """The step replayed without a late rank; None where the trace of a host's own threads does not tell."""
        if not price.on_device:
            return None
        late_us = min(self.us, exposed_us)
        if price.replay is None or price.replay.low_confidence:
            # The wait is measured, whatever a replay makes of the rest of the step: on average, or in the median one,
            # where what is queued behind it hides again.
            usual_us = self.usual_us * exposed_us / late_us if late_us else 0.0
            return price.of_us(0.0, max(price.scale.scaled(late_us), usual_us), _HOW)
        took = price.ops.events.dur_ns
        sent = [
            edits.substitute(one.rows, float(took[one.rows].sum()), len(one.rows) * one.best_ns) for one in self.alike
        ]
        model_us, claims = (0.0, late_us), ("exposed_communication",)
        return price.saving([], sent, claims, _HOW, model_us=model_us, bound_us=exposed_us)


def _usual_us(price: Price, rows: Ints, spans: Intervals, late_ns: int) -> float:
    """What steps like the median one wait, of all that the device has recorded: where the host is far ahead, its window
    ends early, and begins with steps that wait for nobody yet. late_ns: what is exposed of these waits in the window.
    """
    scale, steps = price.scale, price.ops.steps
    usual, took = scale.profiled.median, np.asarray(steps.profiled_us)
    within = total(intersect(union(spans[:, 0], spans[:, 1]), steps.window))
    if not usual or scale.unprofiled.n or scale.step_us != usual or not within or len(took) != steps.count:
        return 0.0
    step = price.ops.links.step[rows]
    alike = np.flatnonzero((took <= _ALIKE * usual) & (took >= usual / _ALIKE))
    each = [total(union(spans[step == n, 0], spans[step == n, 1])) for n in alike]
    return min(float(np.mean(each)) / 1e3 * min(late_ns / within, 1.0), scale.step_us) if each else 0.0


def instead(found: Finding, late: Late, price: Price, exposed_us: float) -> Finding:
    """The finding about communication that mostly waits: to send less does not help."""
    unequal = unequal_work(price, *_waits(price, late.alike))
    said = late.said(price, exposed_us, unequal)
    fix = LENGTHS if unequal else FIND_IT
    return replace(found, message=found.message + said, saving=late.saving(price, exposed_us), fix=fix)


def _waits(price: Price, alike: Sequence[_Alike]) -> tuple[Ints, Intervals]:
    """The collectives that wait, and when."""
    events, rows = price.ops.events, np.concatenate([one.rows for one in alike])
    sent_ns = np.concatenate([np.full(len(one.rows), round(one.least_ns)) for one in alike])
    return rows, np.column_stack((events.start_ns[rows], events.end_ns[rows] - sent_ns))


def _by_kind(price: Price, rows: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Collectives that compare, and the elements of each: of an exchange only those of one size do."""
    events = price.ops.events
    groups: dict[object, list[tuple[int, int]]] = defaultdict(list)
    for row in rows.tolist():
        one = events.collective_table[events.collective[row]]
        size = max(one.in_elements, one.out_elements)
        even = size > 0 and _EVEN.search(one.name) is not None
        key = replace(one, sequence=-1, in_elements=-1, out_elements=-1) if even else replace(one, sequence=-1)
        groups[key].append((row, max(size, 1)))
    for same in groups.values():
        yield np.array([row for row, _ in same], np.int64), np.array([size for _, size in same], np.int64)


def _by_place(price: Price, rows: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Collectives whose sizes the trace does not state: in steps that run the same ones, those of one place in them."""
    events, steps, step = price.ops.events, price.ops.steps, price.ops.links.step[rows]
    rows = rows[np.lexsort((events.start_ns[rows], step))]
    counts = np.bincount(step[step >= 0], minlength=steps.count)
    if not len(rows) or (step < 0).any() or counts.min() != counts.max():
        return
    names = events.name[rows].reshape(steps.count, -1)
    if (names == names[0]).all():
        for same in rows.reshape(steps.count, -1).T:
            yield same, np.ones(len(same), np.int64)


def _longer(rows: Ints, sizes: Ints, took: Ints) -> Iterator[_Alike]:
    """Those that take longer than sending explains, by size."""
    distinct, at = np.unique(sizes, return_inverse=True)
    fastest = np.array([took[at == n].min() for n in range(len(distinct))], np.float64)
    for n, size in enumerate(distinct):
        mine = at == n
        known = [*([n] if mine.sum() >= _ENOUGH else []), *range(n + 1, len(distinct))]
        if not known:
            continue
        shows = min(known, key=lambda one: (fastest[one], one))
        waited = mine & (took > _SHARED * fastest[shows])
        if waited.any():
            best = float((fastest[known] * size / distinct[known]).min())
            yield _Alike(rows[waited], float(fastest[shows]), best, float(distinct[shows] / size))
