"""Steps of a trace that take many times as long as the others, and what the loop does in them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from advisor.analyses.base.steps import Steps
from advisor.analyses.lines.frames import Owner, frame_rows
from advisor.analyses.step.input_wait import fetch_rows
from advisor.capture.record import RankRecord
from advisor.computed import Missing
from advisor.model import Source
from advisor.trace.events import Category, Events, Mask, Trace
from advisor.trace.intervals import Intervals, intersect, overlap_of_each, total

# Where torch creates the iterator of a loader, and with it the workers; frames are recorded by `with_stack=True`.
_LOADER, _BEGINS = "torch/utils/data/dataloader.py(", ": _get_iterator"
_WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter"
# Ranges of torch (steps, fetches, optimizers, collectives) and of frameworks' profilers.
_NOT_THE_SCRIPTS = ("ProfilerStep", "enumerate(", "Optimizer.", "nccl:", "gloo:", "c10d::", "DistributedData", "[pl]")
# Of the time by which such steps are longer: what takes most of it is the cause.
_MOST = 0.5


class Spent(Struct, frozen=True):
    """What the time is spent in by which stalled steps are longer than the others.

    in_loader    share of it that the loop spends in its DataLoader
    in_start     share of it in which an iterator starts workers; None if no stack was recorded, or there are no workers
    where        the user's function that most of it is spent in, if it is recorded
    range_name   the innermost `record_function` range of the script that covers most of it; None if there is none
    """

    in_loader: float
    in_start: float | None
    where: Source | None
    range_name: str | None

    @property
    def waits_for_loader(self) -> bool:
        """Whether most of it is time in the DataLoader."""
        return self.in_loader >= _MOST


class StalledSteps(Struct, frozen=True):
    """Steps of a trace of others that no typical step is like (`Steps.stalled`), two or more.

    count, of    how many there are, of how many recorded steps
    us           their mean duration;  usual_us: mean of the others;  mean_us: of all
    spent        what the added time is spent in
    """

    count: int
    of: int
    us: float
    usual_us: float
    mean_us: float
    spent: Spent

    @property
    def added_us(self) -> float:
        """By how much they lengthen the mean step, µs."""
        return self.mean_us - self.usual_us

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, record: RankRecord | None) -> StalledSteps:
        """The stalled steps. Missing if there are less than two, or if capture accounts for the whole run."""
        if record is not None:
            raise Missing("the account of the run contains what happens between steps")
        spans = steps.stalled
        if len(spans) < 2:
            raise Missing("less than two steps take far longer than the others: nothing recurs in this trace")
        of = steps.count + len(spans)
        return cls(
            count=len(spans),
            of=of,
            us=total(spans) / len(spans) / 1e3,
            usual_us=steps.host_us,
            mean_us=(total(spans) / 1e3 + steps.count * steps.host_us) / of,
            spent=spent_in(trace, steps),
        )


def spent_in(trace: Trace, steps: Steps) -> Spent:
    """What the loop does in the steps of a trace that take far longer than the others, one or more of them."""
    events, spans = trace.events, steps.stalled
    mine = events.thread == steps.main_thread
    added_ns = total(spans) - len(spans) * steps.host_us * 1e3
    python = events.of(Category.PYTHON) & mine

    def share(rows: Mask) -> float:
        return min(total(intersect(events.covered(rows), spans)) / max(added_ns, 1.0), 1.0)

    loader = python & events.named(_LOADER)
    starts = python.any() and events.named(_WORKERS).any()
    return Spent(
        in_loader=share((fetch_rows(events) & mine) | loader),
        in_start=share(loader & events.named(_BEGINS)) if starts else None,
        where=_function(events, steps, spans, added_ns),
        range_name=_range(events, steps, spans, added_ns),
    )


def _function(events: Events, steps: Steps, spans: Intervals, added_ns: float) -> Source | None:
    """The innermost function of the user that covers most of what these steps take longer."""
    rows, frames = frame_rows(events, steps.main_thread)
    users = (name for name in _covering(events, rows, spans, added_ns) if frames[name][1] == Owner.USER)
    name = next(users, None)
    return frames[name][0] if name is not None else None


def _range(events: Events, steps: Steps, spans: Intervals, added_ns: float) -> str | None:
    """The innermost range that covers most of it, and that neither torch nor a framework's profiler made."""
    rows = events.of(Category.ANNOTATION) & (events.thread == steps.main_thread)
    names = (events.names[name] for name in _covering(events, rows, spans, added_ns))
    return next((name for name in names if not name.startswith(_NOT_THE_SCRIPTS)), None)


def _covering(events: Events, rows: Mask, spans: Intervals, added_ns: float) -> Iterator[int]:
    """Names of rows that cover most of what these steps take longer, the shortest, which is the innermost, first."""
    chosen = np.flatnonzero(rows & (events.dur_ns > 0))
    inside = overlap_of_each(events.start_ns[chosen], events.end_ns[chosen], spans)
    # A function that holds the loop runs in all steps.
    inside = np.where(inside >= _MOST * events.dur_ns[chosen], inside, 0)
    of_names = np.bincount(events.name[chosen], weights=inside, minlength=len(events.names))
    most = np.flatnonzero(of_names >= _MOST * added_ns).tolist()
    yield from sorted(most, key=lambda name: of_names[name])
