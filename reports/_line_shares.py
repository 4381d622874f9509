"""What the user's lines cost, in words: the place, its share of the step, how often it runs."""

from __future__ import annotations

from advisor.api import LineShare, Report, dataclass

from . import _ranking, _words

TITLE = "Your costliest lines"
# What the figures are.
MEANING = (
    "Shares of the step without the profiler, on the training loop's thread. The backward pass counts for the lines "
    "whose forward operators caused it; what other lines of yours do is theirs."
)
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
    return tuple(map(_row, report.line_shares))


def most(report: Report) -> tuple[Row, ...]:
    """The few that a summary names."""
    return tuple(row for row in rows(report) if row.middle >= _SHARE)[:_MOST]


def said(row: Row) -> str:
    """How a line comes to its share: 96 runs, 640 operators per step, 40 % in the backward pass."""
    backward = f", {row.backward} of it in the backward pass" if row.backward else ""
    return f"{row.runs}, {row.ops} per step{backward}"


def _row(line: LineShare) -> Row:
    place, within = _ranking.place(line.where)
    return Row(
        place,
        within,
        _words.share_range(line.low, line.high),
        _words.share(line.backward) if line.backward >= _SHARE else "",
        _words.plural(line.runs, "run"),
        _words.plural(line.ops, "operator"),
        (line.low + line.high) / 2,
    )
