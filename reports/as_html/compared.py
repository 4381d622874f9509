"""The page of a comparison: two reports side by side, self-contained as the report's page is.

Geometry is in percentages of a drawing's width, so that it stretches without stretching its text; every drawing has the
same numbers in words beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from advisor.api import BreakdownItem, Compared, ComparedRow, Comparison, change_in_words, dataclass

from .. import _compared_words, _labels, _words
from . import _charts, framed

# A waterfall whose levels all lie above this share of the highest begins there, or no change could be seen.
_ZOOM_FROM = 0.5
# Step times beyond this many medians are drawn at the edge.
_MOST_MEDIANS = 3.0


@dataclass(frozen=True, slots=True)
class Fall:
    """A row of the waterfall. x, width: percentages; kind: total, up or down."""

    name: str
    kind: str
    x: str
    width: str
    said: str


@dataclass(frozen=True, slots=True)
class Spread:
    """The step times of one side: marks (a path in a box of 1000 by 100), and the box of p10, median and p90."""

    name: str
    marks: str
    box: tuple[str, str] | None
    median: str
    said: str


@dataclass(frozen=True, slots=True)
class View:
    """What the template prints. bars: (side, length of its bar, pieces)."""

    c: Comparison
    title: str
    sure: str
    falls: tuple[Fall, ...]
    falls_from: str
    spreads: tuple[Spread, ...]
    axis: tuple[tuple[str, str], ...]
    bars: tuple[tuple[Compared, str, tuple[_charts.Piece, ...]], ...]
    parts: tuple[tuple[str, str, str, str], ...]


def render(comparison: Comparison) -> str:
    """The comparison as one self-contained HTML page."""
    styles = ("page.css", "compared.css")
    return framed("compared.html", styles, view=view_of(comparison), compared=_compared_words)


def view_of(c: Comparison) -> View:
    """The comparison as drawn."""
    falls, start = waterfall(c)
    spreads, axis = spread(c.a, c.b)
    return View(
        c=c,
        title=_compared_words.title(c),
        sure=change_in_words(c.change),
        falls=falls,
        falls_from=start,
        spreads=spreads,
        axis=axis,
        bars=bars(c),
        parts=tuple(_compared_words.part(row) for row in c.parts),
    )


def waterfall(c: Comparison) -> tuple[tuple[Fall, ...], str]:
    """The rows from A's step to B's, and where the axis begins ("" at zero)."""
    if not c.waterfall or not c.a.step_us or not c.b.step_us:
        return (), ""
    levels = [c.a.step_us]
    for row in c.waterfall:
        levels.append(levels[-1] + (row.change or 0.0))
    top, bottom = max(levels), min(levels)
    low = bottom - 0.2 * (top - bottom) if bottom > _ZOOM_FROM * top else 0.0
    span = (top - low) or 1.0

    def fall(name: str, kind: str, ends: tuple[float, float], said: str) -> Fall:
        first, last = sorted((end - low) / span for end in ends)
        return Fall(name, kind, _charts.percent(first), _charts.percent(max(last - first, 0.003)), said)

    rows = [fall("Step of A", "total", (low, levels[0]), _words.time(c.a.step_us))]
    for row, before, after in zip(c.waterfall, levels, levels[1:], strict=False):
        if before != after:
            kind = "up" if after > before else "down"
            rows.append(fall(_labels.part(row.id).name, kind, (before, after), _compared_words.signed(after - before)))
    rows.append(fall("Step of B", "total", (low, c.b.step_us), _words.time(c.b.step_us)))
    return tuple(rows), _words.time(low) if low else ""


def spread(*sides: Compared) -> tuple[tuple[Spread, ...], tuple[tuple[str, str], ...]]:
    """Step times of the sides on one axis, and its marks as (x, text); nothing where no side has any."""
    series = [[v for v in side.series_us if math.isfinite(v) and v > 0] for side in sides]
    known = [values for values in series if values]
    if not known:
        return (), ()
    top = max(min(max(values), _MOST_MEDIANS * sorted(values)[len(values) // 2]) for values in known)
    bottom = min(min(values) for values in known)
    low = 0.0 if bottom < _ZOOM_FROM * top else bottom - 0.1 * (top - bottom)
    span = (top - low) * 1.02 or 1.0
    places = [low + share * span for share in (0.02, 0.25, 0.5, 0.75)]
    axis = tuple((_charts.percent((us - low) / span), _words.time(us)) for us in places)
    return tuple(_spread(side, name, v, (low, span)) for side, name, v in zip(sides, "AB", series, strict=True)), axis


def _spread(side: Compared, name: str, values: Sequence[float], axis: tuple[float, float]) -> Spread:
    low, span = axis
    places = [min(max((value - low) / span, 0.0), 0.998) for value in values]
    marks = "".join(f"M{round(place * 1000, 1):g} 0V100" for place in places)
    t = side.times
    box = None
    if t.p10 is not None and t.p90 is not None:
        ends = [min(max((us - low) / span, 0.0), 1.0) for us in (t.p10, t.p90)]
        box = _charts.percent(ends[0]), _charts.percent(max(ends[1] - ends[0], 0.002))
    median = _charts.percent(min(max((t.median - low) / span, 0.0), 1.0)) if t.median is not None else ""
    return Spread(name, marks, box, median, _compared_words.times(side))


def bars(c: Comparison) -> tuple[tuple[Compared, str, tuple[_charts.Piece, ...]], ...]:
    """Both steps as bars of their parts, on one scale."""
    longest = max(c.a.step_us or 0.0, c.b.step_us or 0.0)
    order = c.waterfall or c.parts
    found = []
    for side, of in ((c.a, "base"), (c.b, "head")):
        items = [_item(row, getattr(row, of), side.step_us) for row in order]
        length = side.step_us / longest if side.step_us else 1.0
        pieces = _charts.bar([item for item in items if item.us > 0])
        # In a short bar no text fits.
        shown = pieces if length > _ZOOM_FROM else tuple(replace(piece, labelled=False) for piece in pieces)
        found.append((side, _charts.percent(length), shown))
    return tuple(found)


def _item(row: ComparedRow, us: float | None, step_us: float | None) -> BreakdownItem:
    return BreakdownItem(row.id, us or 0.0, (us or 0.0) / step_us if step_us else (us or 0.0))
