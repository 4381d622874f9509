"""The page of a history: each series as a line of dots over commits, with levels where they were found."""

from __future__ import annotations

from advisor.api import (
    Changed,
    History,
    Series,
    dataclass,
    history_sentence,
    history_summary,
    history_value,
    short_commit,
)

from . import _charts, framed

# Dots and levels stand within these shares of the drawing's height.
_TOP, _BOTTOM = 0.08, 0.92


@dataclass(frozen=True, slots=True)
class Dot:
    """A result: its place in percentages, and what a pointer says of it."""

    x: str
    y: str
    tip: str


@dataclass(frozen=True, slots=True)
class Line:
    """A level, or the ramp of a drift; ends in percentages."""

    x1: str
    y1: str
    x2: str
    y2: str
    kind: str


@dataclass(frozen=True, slots=True)
class Drawn:
    """A series as drawn. ends: the values at the top and at the bottom of the drawing's scale."""

    series: Series
    where: str
    summary: str
    dots: tuple[Dot, ...]
    lines: tuple[Line, ...]
    changes: tuple[tuple[str, str], ...]
    ends: tuple[str, str]
    commits: tuple[str, str]


def render(history: History) -> str:
    """The history as one self-contained HTML page."""
    styles = ("page.css", "compared.css", "history.css")
    drawn = tuple(_drawn(series) for series in history.series)
    return framed("history.html", styles, history=history, drawn=drawn, value=history_value)


def _drawn(series: Series) -> Drawn:
    values = [point.value for point in series.points]
    low, high = min(values), max(values)
    count = max(len(values) - 1, 1)

    def x(index: float) -> str:
        return _charts.percent(0.01 + 0.98 * index / count)

    def y(value: float) -> str:
        share = (value - low) / (high - low) if high > low else 0.5
        return _charts.percent(_BOTTOM - (_BOTTOM - _TOP) * min(max(share, 0.0), 1.0))

    return Drawn(
        series=series,
        where=", ".join(f"{key} {text}" for key, text in series.fingerprint.items()),
        summary=history_summary(series),
        dots=tuple(
            Dot(x(i), y(point.value), f"{short_commit(point.commit)}: {history_value(point.value, series)}")
            for i, point in enumerate(series.points)
        ),
        lines=tuple(
            Line(x(a), y(first), x(b), y(last), kind)
            for a, first, b, last, kind in _levels(series.changes, len(values))
        ),
        changes=tuple(("worse" if one.worse else "better", history_sentence(one, series)) for one in series.changes),
        ends=(history_value(high, series), history_value(low, series)),
        commits=(short_commit(series.points[0].commit), short_commit(series.points[-1].commit)),
    )


def _levels(changes: tuple[Changed, ...], count: int) -> list[tuple[float, float, float, float, str]]:
    """(from, level, to, level, kind) of each stretch between changes and of each drift."""
    found: list[tuple[float, float, float, float, str]] = []
    start = 0.0
    for one in changes:
        found.append((start, one.before, float(one.at[0]), one.before, "level"))
        found.append((float(one.at[0]), one.before, float(one.at[1]), one.after, "worse" if one.worse else "better"))
        start = float(one.at[1])
    return [*found, (start, changes[-1].after, float(count - 1), changes[-1].after, "level")] if changes else []
