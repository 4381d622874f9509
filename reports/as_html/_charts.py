"""The geometry of the page's drawings, as percentages of their width: SVG that stretches without stretching its text.

Templates only print what stands here. Every drawing has a table with the same numbers beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from advisor.api import BreakdownItem, Finding, Lane, OpRow, Report, RunAccount, Segment, Timeline, Times, dataclass

from .. import _labels, _run_account, _words

# A share is written into its piece of the bar from this width on: "44 %" needs 40 of 400 pixels.
_LABEL_SHARE = 0.10
# Segments from this part of the step on (ten pixels: a pointer finds them) carry a tooltip.
_NAMED_SHARE = 0.01
# Text inside a segment needs about fifty pixels.
_TEXT_SHARE = 0.05
_LANE_HEIGHT, _LANE_PITCH, _AXIS_HEIGHT = 26, 52, 26
_TABLE_ROWS = 25

_KINDS = {
    **{name: label.name for name, label in _labels.PARTS.items()},
    "copy": "Copy",
    "memset": "Memset",
    "op": "Operator",
    "python": "Python",
    "sync": "Blocking call",
    "launch": "Launch",
    "runtime": "Runtime call",
    "idle": "Idle",
    "other": "Other",
}
# Parts of the run look like the part of a step that is nearest to them.
_RUN_KINDS = {
    "startup": "idle",
    "training": "compute",
    "evaluation": "input",
    "checkpoints": "communication",
    "worker_restarts": "launch",
    "logging": "python",
    "epoch_end": "optimizer",
    "compilation": "sync",
    "end": "runtime",
}
# Words of traces and engines for the same thing; the class of the drawing is the value.
_SAME = {"compute": "compute", "kernel": "compute", "memcpy": "copy", "cpu_op": "op", "python_function": "python"}


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the breakdown bar. x, width: percentages. kind: the class that gives its fill."""

    kind: str
    name: str
    meaning: str
    x: str
    width: str
    share: str
    us: str
    labelled: bool


@dataclass(frozen=True, slots=True)
class Box:
    """A drawn segment of a lane. label is "" where it is too narrow for text or a tooltip."""

    kind: str
    x: str
    width: str
    label: str
    tip: str


@dataclass(frozen=True, slots=True)
class Row:
    """A segment in the table beside the timeline."""

    start: str
    time: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class DrawnLane:
    """A lane: its text's and its boxes' height on the drawing, its boxes, and its longest segments as a table."""

    name: str
    text_y: int
    y: int
    boxes: tuple[Box, ...]
    rows: tuple[Row, ...]
    left_out: str


@dataclass(frozen=True, slots=True)
class DrawnTimeline:
    """One step. ticks: (x, text)."""

    step: str
    time: str
    height: int
    lane_height: int
    ticks: tuple[tuple[str, str], ...]
    lanes: tuple[DrawnLane, ...]
    kinds: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Strip:
    """Step times in order. path: bars in a box of `n` by 100; levels: (name, y, text); clipped: a sentence or ""."""

    n: int
    path: str
    over: str
    levels: tuple[tuple[str, str, str], ...]
    clipped: str
    desc: str


def percent(value: float) -> str:
    """A share of the width as an SVG length."""
    return f"{round(value * 100, 3):g}%"


def kind_class(kind: str) -> str:
    """The drawing class of a segment's kind; never a word from a trace."""
    name = _SAME.get(kind, kind)
    return name if name in _KINDS else "other"


def bar(items: Sequence[BreakdownItem]) -> tuple[Piece, ...]:
    """The parts of a step one after the other; parts of no length are left out."""
    total = sum(item.share for item in items) or 1.0
    scale_us = max((item.us for item in items), default=0.0)
    pieces, x = [], 0.0
    for item in items:
        width = item.share / total
        if item.share > 0:
            label = _labels.part(item.id)
            shown = (percent(x), percent(width), _words.share(item.share), _words.time_at(item.us, scale_us))
            pieces.append(Piece(kind_class(item.id), label.name, label.meaning, *shown, width >= _LABEL_SHARE))
        x += width
    return tuple(pieces)


def run_bar(account: RunAccount | None) -> tuple[Piece, ...]:
    """The parts of the watched run one after the other."""
    rows = _run_account.rows(account) if account else ()
    pieces, x = [], 0.0
    for part, row in zip(account.parts if account else (), rows, strict=True):
        label, kind = _labels.run_part(part.id), _RUN_KINDS.get(part.id, "other")
        width = part.us / account.us if account else 0.0
        shown = (percent(x), percent(width), row.share or row.time, row.time)
        pieces.append(Piece(kind, label.name, label.meaning, *shown, width >= _LABEL_SHARE))
        x += width
    return tuple(pieces)


def range_bar(finding: Finding, step_us: float | None) -> tuple[str, str, str] | None:
    """A saving on the scale of a step or the run: (length that is sure, start and length of what is possible)."""
    step_us = finding.run_us or step_us
    if finding.saving is None or not step_us:
        return None
    low, high = (min(value / step_us, 1.0) for value in (finding.saving.low_us, finding.saving.high_us))
    return percent(low), percent(low), percent(high - low)


def timeline(found: Timeline | None) -> DrawnTimeline | None:
    """The drawn step, or None where there is none."""
    if found is None or found.dur_us <= 0 or not found.lanes:
        return None
    lanes = tuple(_lane(lane, index, found.dur_us) for index, lane in enumerate(found.lanes))
    seen = {kind_class(segment.kind) for lane in found.lanes for segment in lane.segments}
    return DrawnTimeline(
        step=_words.one_line(found.step),
        time=_words.time(found.dur_us),
        height=_AXIS_HEIGHT + _LANE_PITCH * len(lanes),
        lane_height=_LANE_HEIGHT,
        ticks=_ticks(found.dur_us),
        lanes=lanes,
        kinds=_legend(seen),
    )


def _legend(seen: set[str]) -> tuple[tuple[str, str], ...]:
    """(kind, name) of what is drawn; two kinds of one name look the same and are named once."""
    names = {name: kind for kind, name in reversed(_KINDS.items()) if kind in seen}
    return tuple((kind, name) for name, kind in reversed(names.items()))


def _lane(lane: Lane, index: int, dur_us: float) -> DrawnLane:
    top = _AXIS_HEIGHT + index * _LANE_PITCH
    longest = sorted(lane.segments, key=lambda segment: -segment.dur_us)
    listed = sorted(longest[:_TABLE_ROWS], key=lambda segment: segment.start_us)
    rest = longest[_TABLE_ROWS:]
    left_out = f"{_words.plural(len(rest), 'shorter segment')}, {_words.time(sum(s.dur_us for s in rest))} in all"
    return DrawnLane(
        name=_words.one_line(lane.name),
        text_y=top + 14,
        y=top + 20,
        boxes=tuple(_box(segment, dur_us) for segment in lane.segments),
        rows=tuple(_row(segment, dur_us) for segment in listed),
        left_out=left_out if rest else "",
    )


def _box(segment: Segment, dur_us: float) -> Box:
    start = min(max(segment.start_us / dur_us, 0.0), 1.0)
    width = min(max(segment.dur_us / dur_us, 0.0), 1.0 - start)
    named = width >= _NAMED_SHARE
    name = _segment_name(segment)
    tip = f"{_words.short(name, 100)}: {_words.time(segment.dur_us)} from {_words.time_at(segment.start_us, dur_us)}"
    label = _words.short(name, 48) if width >= _TEXT_SHARE else ""
    return Box(kind_class(segment.kind), percent(start), percent(width), label, tip if named else "")


def _row(segment: Segment, dur_us: float) -> Row:
    start = _words.time_at(segment.start_us, dur_us)
    return Row(
        start, _words.time(segment.dur_us), _KINDS[kind_class(segment.kind)], _words.short(_segment_name(segment), 100)
    )


def _segment_name(segment: Segment) -> str:
    """What a segment is called: idle time by its cause first, all else by its own name."""
    cause, label = _KINDS[kind_class(segment.kind)], _words.one_line(segment.label)
    if segment.kind.startswith("idle"):
        return f"{cause}: {label}" if label and label.lower() != cause.lower() else cause
    return label or cause


# A text stands right of its mark. On a page of 360 pixels one of five letters takes 12 % of the axis, and what does not
# fit would be cut off.
_LAST_TEXT = 0.88


def _ticks(dur_us: float) -> tuple[tuple[str, str], ...]:
    """Round times along the axis; a mark too near the end has no text."""
    size = 10 ** math.floor(math.log10(dur_us / 4))
    step = max(size * factor for factor in (1, 2, 5, 10) if dur_us / (size * factor) >= 4 or factor == 1)
    marks = [i * step for i in range(int(dur_us / step) + 1)]
    return tuple((percent(us / dur_us), _tick(us, dur_us) if us <= _LAST_TEXT * dur_us else "") for us in marks)


def _tick(us: float, dur_us: float) -> str:
    factor, unit = (1e6, "s") if dur_us >= 999_500 else (1e3, "ms") if dur_us >= 999.5 else (1.0, "µs")
    return f"{us / factor:g} {unit}"


def strip(report: Report) -> Strip | None:
    """Step times in order, with median and mean; bars past the top are cut, marked and told."""
    series = [value for value in report.steps.series_us if math.isfinite(value) and value >= 0]
    if len(series) < 2:
        return None
    profiled = report.steps.unprofiled_us.n == 0
    times = report.steps.profiled_us if profiled else report.steps.unprofiled_us
    ordered = sorted(series)
    median = ordered[len(ordered) // 2]
    # Three medians keep ordinary steps readable; a tail that is part of the ordinary (p90) still fits.
    top = max(min(ordered[-1], 3 * median), 1.1 * ordered[int(0.9 * (len(ordered) - 1))], 1e-9)
    over = [index for index, value in enumerate(series) if value > top]
    bars = "".join(f"M{i} 100V{_height(v, top)}h.8V100z" for i, v in enumerate(series))
    marks = "".join(f"M{i} 0h.8v5h-.8z" for i in over)
    clipped = (
        f"{_words.plural(len(over), 'step')} {'is' if len(over) == 1 else 'are'} above the top of this chart; "
        f"the longest took {_words.time(ordered[-1])}."
        if over
        else ""
    )
    how = "with the profiler on" if profiled else "without the profiler"
    desc = f"{len(series)} steps in order, {how}: from {_words.time(ordered[0])} to {_words.time(ordered[-1])}."
    return Strip(len(series), bars, marks, _levels(times, top), clipped, desc)


def _height(value: float, top: float) -> str:
    return f"{round(100 - min(value / top, 1.0) * 100, 2):g}"


def _levels(times: Times, top: float) -> tuple[tuple[str, str, str], ...]:
    """Lines for median and mean: (name, y, text); y is "" for a line above the drawing."""
    known = (("median", times.median), ("mean", times.mean))
    return tuple(
        (name, percent(1 - value / top), f"{name} {_words.time(value)}")
        if value <= top
        else (name, "", f"{name} {_words.time(value)}, above this chart")
        for name, value in known
        if value is not None
    )


def rows(found: Sequence[OpRow]) -> tuple[tuple[OpRow, str], ...]:
    """Kernels or ops with the length of their bar: the longest fills it."""
    widest = max((row.us for row in found), default=0.0) or 1.0
    return tuple((row, percent(row.us / widest)) for row in found)
