"""Steps that the user's own ranges mark (NVTX, roctx, Perfetto's SDK), in traces that Kineto did not write."""

from __future__ import annotations

import re

import numpy as np

from advisor.analyses.base.step_rows import StepRows
from advisor.trace.events import Category, Events, Ints, Mask, Trace

_NUMBER = re.compile(r"\d+")
# What people call an iteration of a training loop. Ranges of other names are steps only where they repeat as well.
_STEP = re.compile(r"(?<![a-z])(?:step|iter|iteration|batch|train_step|training_step)(?![a-z])", re.IGNORECASE)
# Ranges that hold many steps, or a part of one.
_OTHER = re.compile(r"epoch|optim|sched|forward|backward|loss|zero_grad|load|next", re.IGNORECASE)
# Two might be two phases of a run.
_FEWEST = 3
# Of the time from the first to the last: less is something that happens now and then, or a part of a step.
_COVERED = 0.5


def marked_by_ranges(trace: Trace) -> StepRows | None:
    """The ranges of one name (numbers in it apart) and thread that repeat and cover most of the loop's time.

    A name that says step or iteration goes first, then the ranges that cover the most time. None in a trace of Kineto,
    where `ProfilerStep#N` rows and optimizer steps mark steps, and record_function marks anything.
    """
    if trace.meta.format == "kineto":
        return None
    events = trace.events
    found = [(rank, rows) for rows in _repeated(events) if (rank := _rank(events, rows)) is not None]
    if not found:
        return None
    _, rows = max(found, key=lambda one: one[0])
    spans = np.column_stack((events.start_ns[rows], events.end_ns[rows]))
    labels = tuple(events.text(row) for row in rows.tolist())
    return StepRows(spans, labels, "user", int(events.thread[rows[0]]))


def _repeated(events: Events) -> list[Ints]:
    """Rows of ranges by thread and name without numbers, those apart from each other, where there are enough."""
    rows = np.flatnonzero(events.of(Category.ANNOTATION) & (events.dur_ns > 0))
    stems = [_NUMBER.sub("#", name) for name in events.names]
    groups: dict[tuple[int, str], list[int]] = {}
    for row, thread, name in zip(rows.tolist(), events.thread[rows].tolist(), events.name[rows].tolist(), strict=True):
        groups.setdefault((thread, stems[name]), []).append(row)
    alone = [_apart(events, np.array(group, np.int64)) for group in groups.values() if len(group) >= _FEWEST]
    return [group for group in alone if len(group) >= _FEWEST]


def _apart(events: Events, rows: Ints) -> Ints:
    """Rows in order of time without those that begin within an earlier one."""
    reach = np.maximum.accumulate(events.end_ns[rows])
    kept: Mask = np.concatenate(([True], events.start_ns[rows[1:]] >= reach[:-1]))
    apart: Ints = rows[kept]
    return apart


def _rank(events: Events, rows: Ints) -> tuple[bool, int] | None:
    """How likely the rows are to be steps, larger is likelier; None where they are none."""
    name = events.text(int(rows[0]))
    length, whole = int(events.dur_ns[rows].sum()), int(events.end_ns[rows[-1]] - events.start_ns[rows[0]])
    if _OTHER.search(name) or length < _COVERED * whole:
        return None
    return _STEP.search(name) is not None, length
