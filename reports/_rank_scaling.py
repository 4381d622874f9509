"""The step on other numbers of ranks: a table in words, and the drawing of its efficiency."""

from __future__ import annotations

import math
from collections.abc import Iterator

from advisor.api import AtRanks, WhatIfRanks, dataclass, duration_unit

from . import _words

TITLE = "On other numbers of ranks"
# Of the drawing's width, where the first and the last number of ranks stand: their texts need the rest.
_LEFT, _RIGHT = 0.08, 0.92
# Below the plot stand the numbers of ranks.
HIGH, PLOT = 200, 170


@dataclass(frozen=True, slots=True)
class Row:
    """A number of ranks in words."""

    ranks: str
    step: str
    efficiency: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A number of ranks on the axis, with the ends of its range. x: per cent of the width; y: of the drawing."""

    x: str
    low_y: str
    high_y: str
    text: str
    measured: bool
    tip: str


@dataclass(frozen=True, slots=True)
class Plot:
    """Efficiency by ranks. band: the outline of its range in a box of 1000 by PLOT; lines: (y, text) of the grid."""

    band: str
    marks: tuple[Mark, ...]
    lines: tuple[tuple[str, str], ...]


def rows(found: WhatIfRanks) -> list[Row]:
    """The measured number of ranks and the others, in order."""
    return [_row(one, one.ranks == found.ranks) for one in _points(found)]


def lead(found: WhatIfRanks) -> str:
    """What the table is about."""
    measured = _words.plural(found.ranks, "measured rank")
    if found.alone_us is None:
        return f"Computed from {measured}"
    return f"Computed from {measured}; without waiting for communication a step takes {_words.time(found.alone_us)}"


def fitted(found: WhatIfRanks) -> Iterator[str]:
    """What collectives cost where they were measured: one sentence for each kind."""
    for one in found.fitted:
        latency = _words.time_range(one.low_latency_us, one.high_latency_us)
        speed = f" and {_words.size(one.bytes_per_second)} per second" if one.bytes_per_second else ""
        n = _words.plural(one.collectives, "collective")
        yield f"{one.kind} on {found.ranks} ranks: latency {latency}{speed}, fitted to {n}"


def plot(found: WhatIfRanks) -> Plot | None:
    """The drawing; None where there is one number of ranks only."""
    points = _points(found)
    if len(points) < 2:
        return None
    logs = [math.log2(one.ranks) for one in points]
    at = [_LEFT + (_RIGHT - _LEFT) * (one - logs[0]) / (logs[-1] - logs[0]) for one in logs]
    ends = [(_y(one.high_efficiency), _y(one.low_efficiency or 0.0)) for one in points]
    upper = [f"{1000 * x:.1f},{high:.1f}" for x, (high, _) in zip(at, ends, strict=True)]
    lower = [f"{1000 * x:.1f},{low:.1f}" for x, (_, low) in zip(at, ends, strict=True)]
    marks = tuple(
        Mark(
            f"{100 * x:.2f}%",
            f"{low:.1f}",
            f"{high:.1f}",
            _words.count(one.ranks),
            one.ranks == found.ranks,
            f"{_words.plural(one.ranks, 'rank')}: {_row(one, one.ranks == found.ranks).efficiency}",
        )
        for x, (high, low), one in zip(at, ends, points, strict=True)
    )
    lines = tuple((f"{_y(share):.1f}", _words.share(share)) for share in (0.0, 0.5, 1.0))
    return Plot(" ".join((*upper, *reversed(lower))), marks, lines)


def _y(share: float) -> float:
    """Where an efficiency stands: 1 below the upper edge, 0 at the lower one."""
    return 12 + (PLOT - 14) * (1 - share)


def _points(found: WhatIfRanks) -> list[AtRanks]:
    """The numbers that were asked about and the measured one."""
    known = {one.ranks: one for one in found.rows}
    if found.rows and found.step_us is not None and found.efficiency is not None:
        step, share = found.step_us, found.efficiency
        known[found.ranks] = AtRanks(found.ranks, step, step, share, share)
    return [known[ranks] for ranks in sorted(known)]


def _row(one: AtRanks, measured: bool) -> Row:
    ranks = f"{_words.count(one.ranks)}{' (measured)' if measured else ''}"
    if one.high_us is None or one.low_efficiency is None:
        return Row(ranks, f"at least {_words.time(one.low_us)}", f"at most {_words.share(one.high_efficiency)}")
    # Ends that are far apart have units of their own: of 49 ms to 1.44 s one unit hides the first.
    far = duration_unit(one.low_us) != duration_unit(one.high_us)
    step = f"{_words.time(one.low_us)} to {_words.time(one.high_us)}" if far else ""
    share = _words.share_range(one.low_efficiency, one.high_efficiency)
    return Row(ranks, step or _words.time_range(one.low_us, one.high_us), share)
