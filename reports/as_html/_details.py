"""Ranks in full, besides the one that the rest of the page describes."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from advisor.api import DetailedRank, OpRow, Report, dataclass

from .. import _labels, _words
from . import _charts, _modules

# Rows of a table: enough to see what a rank does otherwise; report.json has twice as many.
_ROWS = 10


@dataclass(frozen=True, slots=True)
class Detail:
    """A rank: why it is shown, "" where all are, and its drawings and tables."""

    rank: int
    why: str
    timeline: _charts.DrawnTimeline | None
    lines: tuple[tuple[OpRow, str], ...]
    kernels: tuple[tuple[OpRow, str], ...]
    ops: tuple[tuple[OpRow, str], ...]
    modules: _modules.Modules | None


def details(report: Report) -> tuple[Detail, ...]:
    """The ranks in full of a report."""
    return tuple(_detail(report, one) for one in report.details)


def _detail(report: Report, one: DetailedRank) -> Detail:
    modules = _modules.modules(replace(report, modules=one.modules))
    return Detail(
        rank=one.rank,
        why=_words.listed([_why(why) for why in one.why]),
        timeline=_charts.timeline(one.timeline),
        lines=_rows([replace(row, name=_words.path(row.name)) for row in one.lines]),
        kernels=_rows(one.kernels),
        ops=_rows(one.ops),
        modules=modules if modules and modules.rows else None,
    )


def _rows(found: Sequence[OpRow]) -> tuple[tuple[OpRow, str], ...]:
    return _charts.rows(found[:_ROWS])


def _why(why: str) -> str:
    """A reason in words: kind and place of a group as its name."""
    kind, colon, place = why.partition(":")
    name = _labels.dimension(kind).name if colon else _words.one_line(kind)
    return f"{name[:1].lower()}{name[1:]} {place}".strip()
