"""Which host call started which device work."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from advisor.analyses.base.classify import launch_calls
from advisor.trace.events import Category, Events, Ints, Mask, Numbers, Trace
from advisor.trace.numbers import distinct_pairs, row_type


class Launched(Struct, frozen=True, eq=False):
    """Launches of device work, by correlation (any runtime or driver call; one call may start many kernels).

    launch  row of the call that started each device event, -1 where the trace holds none (and for other rows). Where
            no correlation names a call, those of one stream are in the order of their calls, as queues are, if there is
            one call for each; else those of an op (`External id`) are in the order of its calls
    before  device work that was launched before the recording began: what a stream does before the first work on it
            whose launch is known
    """

    launch: Numbers
    before: Mask

    @classmethod
    def compute(cls, trace: Trace) -> Launched:
        """The launches of a trace."""
        launch = _launches(trace.events, trace.device_work)
        if (launch < 0).all():
            launch = _in_order(trace.events, trace.device_work)
            launch = np.where(launch < 0, _of_one_op(trace.events, trace.device_work), launch)
        return cls(launch, _before(trace, launch))


def _before(trace: Trace, launch: Numbers) -> Mask:
    events, found = trace.events, np.zeros(len(launch), bool)
    works = np.flatnonzero(trace.device_work)
    known = launch[works] >= 0
    if not known.any() or known.all():
        return found
    places, place = distinct_pairs(events.device[works], events.stream[works])
    first = np.full(len(places), int(events.start_ns[works[known]].min()))
    for at in range(len(places)):
        mine = known & (place == at)
        if mine.any():
            first[at] = events.start_ns[works[mine]].min()
    found[works] = ~known & (events.start_ns[works] < first[place])
    return found


def _launches(events: Events, work: Mask) -> Numbers:
    """The last call of the same correlation that started before the work; else the first (clocks may disagree)."""
    calls = np.flatnonzero(events.of(Category.RUNTIME) & (events.correlation > 0))
    works = np.flatnonzero(work & (events.correlation > 0))
    launch = np.full(len(events), -1, row_type(len(events)))
    if not len(calls) or not len(works):
        return launch
    by_number = _single_calls(events, calls)
    if by_number is not None:
        launch[works] = by_number[np.minimum(events.correlation[works], len(by_number) - 1)]
        return launch
    # Some tools reuse correlations: sort both together by (correlation, start) and look back to the nearest call.
    rows = np.concatenate((calls, works)).astype(launch.dtype, copy=False)
    order = np.lexsort((np.arange(len(rows)) >= len(calls), events.start_ns[rows], events.correlation[rows]))
    rows = rows[order]
    is_call = order < len(calls)
    positions = np.arange(len(rows), dtype=launch.dtype)
    for back in (False, True):  # the look back wins
        if back:
            candidate = np.maximum.accumulate(np.where(is_call, positions, -1))
        else:
            candidate = np.minimum.accumulate(np.where(is_call, positions, len(rows))[::-1])[::-1]
        valid = (candidate >= 0) & (candidate < len(rows)) & ~is_call
        at = rows[np.clip(candidate, 0, len(rows) - 1)]
        valid &= events.correlation[at] == events.correlation[rows]
        launch[rows[valid]] = at[valid]
    return launch


def _in_order(events: Events, work: Mask) -> Numbers:
    """The calls of one queue: the k-th kernel, copy or fill is that of the k-th call for one, and begins after it."""
    launch = np.full(len(events), -1, row_type(len(events)))
    works = np.flatnonzero(work)
    if len(distinct_pairs(events.device[works], events.stream[works])[0]) != 1:
        return launch
    for pair in _of_each_kind(events, work):
        begun, asked = (rows[np.argsort(events.start_ns[rows], kind="stable")] for rows in pair)
        if len(begun) == len(asked) and (events.start_ns[begun] >= events.start_ns[asked]).all():
            launch[begun] = asked
    return launch


def _of_one_op(events: Events, work: Mask) -> Ints:
    """The k-th kernel, copy or fill of an op is that of its k-th call for one; its last has the rest (graphs)."""
    launch, op = np.full(len(events), -1, np.int64), events.external_id
    for pair in _of_each_kind(events, work):
        begun, asked = (rows[np.lexsort((events.start_ns[rows], op[rows]))] for rows in pair)
        begun, asked = begun[op[begun] > 0], asked[op[asked] > 0]
        first, after = (np.searchsorted(op[asked], op[begun], side) for side in ("left", "right"))
        number = np.arange(len(begun)) - np.searchsorted(op[begun], op[begun], "left")
        known = after > first
        works, calls = begun[known], asked[np.minimum(first + number, after - 1)[known]]
        possible = events.start_ns[works] >= events.start_ns[calls]
        launch[works[possible]] = calls[possible]
    return launch


def _of_each_kind(events: Events, work: Mask) -> Iterator[tuple[Ints, Ints]]:
    """Work of the device, and the calls for it."""
    calls = events.of(Category.RUNTIME)
    for kind, mine in (
        (Category.KERNEL, launch_calls(events)),
        (Category.MEMCPY, calls & events.named("Memcpy")),
        (Category.MEMSET, calls & events.named("Memset")),
    ):
        yield np.flatnonzero(events.of(kind) & work), np.flatnonzero(mine)


# A table of this many entries per event is smaller than what sorting the rows takes.
_NUMBERS_PER_EVENT = 4


def _single_calls(events: Events, calls: Ints) -> Numbers | None:
    """The row of the call by correlation, -1 for none and in the last entry; None where two calls share one."""
    number = events.correlation[calls]
    largest = int(number.max())
    if largest > _NUMBERS_PER_EVENT * len(events):
        return None
    row_of = np.full(largest + 2, -1, row_type(len(events)))
    row_of[number] = calls
    return row_of if np.array_equal(row_of[number], calls) else None
