"""One rank as tracks on a time axis: its steps, its idle time with causes, what was found, and its recorded rows."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor.analyses.base.steps import Steps
from advisor.analyses.step.breakdown import Breakdown
from advisor.analyses.step.gpu_idle import GpuIdle
from advisor.computed import Computed
from advisor.model import Report, Source
from advisor.quantities import duration
from advisor.trace.events import DEVICE_WORK, Category, Events, Ints, Trace
from advisor.trace.export.chrome import Row, Track

# One in so many of a rank's rows may be an idle gap: 15 in 100 were in a ResNet on a V100, 10 in a DLRM.
_IDLE_PART = 5
# In which order kinds of rows are kept where not all fit: what the device did, the names of stretches, then the host.
_KEPT_FIRST = {
    **dict.fromkeys(DEVICE_WORK, 0),
    Category.ANNOTATION: 1,
    Category.CPU_OP: 2,
    Category.RUNTIME: 2,
    Category.SYNC: 2,
    Category.PYTHON: 3,
}
_NAMES = {
    Category.CPU_OP: "cpu_op",
    Category.ANNOTATION: "user_annotation",
    Category.PYTHON: "python_function",
    Category.RUNTIME: "runtime",
    Category.KERNEL: "kernel",
    Category.MEMCPY: "gpu_memcpy",
    Category.MEMSET: "gpu_memset",
    Category.SYNC: "cuda_sync",
}


@dataclass(frozen=True, slots=True)
class RankTracks:
    """The tracks of one rank, and how many of its rows within the steps are not drawn: those that have no track
    (copies of annotations on the device, rows of the profiler itself) are not counted."""

    tracks: tuple[Track, ...]
    left_out: int


def rank_tracks(computed: Computed, rank: int, report: Report, shift_ns: int, most: int) -> RankTracks:
    """The tracks of a trace. shift_ns: taken from all its times; most: recorded rows and gaps that are drawn."""
    steps, trace = computed.get(Steps), computed.get(Trace)
    own = [Track("steps", [_step(steps, place, shift_ns) for place in range(len(steps.labels))])]
    idle, idle_out = _parts(computed, shift_ns, most // _IDLE_PART)
    found = Track("findings", list(_findings(report, rank, steps, shift_ns)))
    drawn, left_out = _chosen(trace, steps, most - len(idle.rows))
    tracks = (*own, idle, found, *_recorded(trace.events, drawn, shift_ns))
    return RankTracks(tuple(track for track in tracks if track.rows), left_out + idle_out)


def _step(steps: Steps, place: int, shift_ns: int) -> Row:
    start, end = (int(edge) - shift_ns for edge in steps.spans[place])
    return Row(start, end, steps.labels[place], "advisor_step", {"told by": steps.source})


def _parts(computed: Computed, shift_ns: int, most: int) -> tuple[Track, int]:
    """Idle time of the device by cause; without a device what the loop does. The longest, and how many more."""
    breakdown, idle, steps = computed.find(Breakdown), computed.find(GpuIdle), computed.get(Steps)
    if breakdown is None:
        return Track("", []), 0
    if breakdown.on_device and idle is not None:
        window = int(steps.window[0, 0]), int(steps.window[-1, 1])
        rows = [
            Row(gap.start_ns - shift_ns, gap.end_ns - shift_ns, gap.cause, "advisor_idle", _told(gap))
            for gap in idle.gaps.between(*window)
        ]
        name = "device idle, by cause"
    else:
        rows = [
            Row(start - shift_ns, end - shift_ns, part, "advisor_part", {})
            for part, spans in breakdown.intervals.items()
            for start, end in spans.tolist()
        ]
        name = "training loop, by part"
    rows.sort(key=lambda row: row.start_ns - row.end_ns)
    return Track(name, rows[:most]), max(len(rows) - most, 0)


def _told(gap: Any) -> dict[str, str]:
    """What is known of an idle stretch."""
    known = {"host": gap.host, "after": gap.after, "before": gap.before, "where": _place(gap.where)}
    return {name: value for name, value in known.items() if value}


def _place(where: Source | None) -> str:
    return f"{where.file}:{where.line}" if where else ""


def _findings(report: Report, rank: int, steps: Steps, shift_ns: int) -> Iterator[Row]:
    """Findings about this rank, each over the whole window: they are of all steps. The largest saving encloses."""
    start, end = int(steps.spans[0, 0]) - shift_ns, int(steps.spans[-1, 1]) - shift_ns
    for outcome, finding in report.findings():
        if finding.ranks and rank not in finding.ranks:
            continue
        saving = finding.saving
        saves = f"{duration(saving.low_us)} to {duration(saving.high_us)} per step" if saving else ""
        args: dict[str, Any] = {"rule": outcome.rule, "message": finding.message, "severity": finding.severity}
        if saving:
            args |= {"saving": saves, "low_us": saving.low_us, "high_us": saving.high_us, "basis": saving.basis}
        if finding.where:
            args["where"] = [_place(one) for one in finding.where]
        if finding.fix:
            args["fix"] = finding.fix.title
        yield Row(start, end, f"{outcome.rule}: saves {saves}" if saves else outcome.rule, "advisor_finding", args)


def _chosen(trace: Trace, steps: Steps, most: int) -> tuple[Ints, int]:
    """Rows of the steps that are drawn, by start, and how many are not: device work goes first, then the longest."""
    events = trace.events
    start, end = int(steps.spans[0, 0]), max(int(steps.spans[-1, 1]), int(steps.window[-1, 1]))
    known = np.isin(events.category, [int(kind) for kind in _NAMES])
    rows = np.flatnonzero(known & (events.start_ns >= start) & (events.start_ns < end))
    if len(rows) <= most:
        return rows, 0
    first = np.full(len(Category), max(_KEPT_FIRST.values()) + 1)
    first[[int(kind) for kind in _KEPT_FIRST]] = list(_KEPT_FIRST.values())
    order = np.lexsort((-events.dur_ns[rows], first[events.category[rows]]))
    return np.sort(rows[order[:most]]), len(rows) - most


def _recorded(events: Events, rows: Ints, shift_ns: int) -> Iterator[Track]:
    """Recorded rows by thread and by stream: threads first, the busiest before others."""
    tracks: dict[tuple[int, str], list[Row]] = defaultdict(list)
    device = np.isin(events.category, [int(kind) for kind in DEVICE_WORK])
    for row in rows.tolist():
        tracks[_track(events, row, bool(device[row]))].append(_row(events, row, shift_ns))
    for (_, name), found in sorted(tracks.items(), key=lambda one: (one[0][0], -len(one[1]), one[0][1])):
        yield Track(name, found)


def _track(events: Events, row: int, on_device: bool) -> tuple[int, str]:
    if on_device:
        return 1, f"device {int(events.device[row])}, stream {int(events.stream[row])}"
    thread = events.threads[events.thread[row]]
    return 0, thread.name or f"thread {thread.tid}"


def _row(events: Events, row: int, shift_ns: int) -> Row:
    start = int(events.start_ns[row]) - shift_ns
    category = _NAMES[Category(int(events.category[row]))]
    return Row(start, start + int(events.dur_ns[row]), events.text(row), category, _args(events, row))


def _args(events: Events, row: int) -> Mapping[str, Any]:
    """What a reader looks up: shapes of ops, bytes of copies, what a collective sends."""
    found: dict[str, Any] = {}
    if events.dims[row] >= 0:
        found["Input Dims"] = _json(events.dims_table[events.dims[row]])
    if events.bytes[row] >= 0:
        found["bytes"] = int(events.bytes[row])
    if events.stream[row] >= 0:
        found |= {"device": int(events.device[row]), "stream": int(events.stream[row])}
    if events.collective[row] >= 0:
        said = events.collective_table[events.collective[row]]
        found |= {"collective": said.name, "elements": said.in_elements, "dtype": said.dtype, "group": said.group}
    return found


def _json(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except ValueError:
        return text
