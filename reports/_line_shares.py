"""What the user's lines cost, in words: the place, its share of the step, how often it runs."""

from __future__ import annotations

from advisor.api import LineShare, Report, dataclass

from . import _ranking, _verdict, _words

# What the figures are.
_HOST = "Shares of the step without the profiler, on the training loop's thread."
_DEVICE = "Time of the device work that each line starts, as a share of the step without the profiler."
_CAUSED = "The backward pass counts for the lines whose forward operators caused it"
_CALLED = "The backward pass counts for the line that calls it"
# A summary names no line below a twentieth of the step, and no more than five.
_SHARE, _MOST = 0.05, 5


@dataclass(frozen=True, slots=True)
class Row:
    """A line as text. middle: the middle of its share's range, which a bar shows."""

    place: str
    within: str
    share: str
    backward: str
    runs: str
    ops: str
    middle: float


def rows(report: Report) -> tuple[Row, ...]:
    """Every line, most expensive first."""
    work = "device operation" if _verdict.is_on_device(report) else "operator"
    return tuple(_row(line, work) for line in report.line_shares)


def title(report: Report) -> str:
    """What the lines are listed by."""
    return "Your lines by device time" if _verdict.is_on_device(report) else "Your costliest lines"


def meaning(report: Report) -> str:
    """What the figures are."""
    backward = _CAUSED if any(line.backward for line in report.line_shares) else _CALLED
    time = _DEVICE if _verdict.is_on_device(report) else _HOST
    return f"{time} {backward}; what other lines of yours do is theirs."


def most(report: Report) -> tuple[Row, ...]:
    """The few that a summary names."""
    return tuple(row for row in rows(report) if row.middle >= _SHARE)[:_MOST]


def said(row: Row) -> str:
    """How a line comes to its share: 96 runs, 640 operators per step, 40 % in the backward pass."""
    backward = f", {row.backward} of it in the backward pass" if row.backward else ""
    return f"{', '.join(filter(None, (row.runs, row.ops)))} per step{backward}"


def _row(line: LineShare, work: str) -> Row:
    place, within = _ranking.place(line.where)
    return Row(
        place,
        within,
        _words.share_range(line.low, line.high),
        _words.share(line.backward) if line.backward >= _SHARE else "",
        _words.plural(line.runs, "run") if line.runs else "",
        _words.plural(line.ops, work),
        min((line.low + line.high) / 2, 1.0),  # work on several streams adds up to more than the step
    )
