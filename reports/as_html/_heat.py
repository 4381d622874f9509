"""The heat map of a job: a row for each rank, a column for each part of its step, coloured by how it differs.

Colours say how far a rank is above or below the median rank, as a share of the step, on one scale for all columns: a
job of equal ranks is blank.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from advisor.api import ComparedRank, ComparedRanks, RankSummary, Report, dataclass, duration_unit

from .. import _compared_ranks, _labels, _words

# Rows on the page: 1,024 of them take about 1 MB. Of more the ranks that are waited for, and the slowest, stay.
_MOST_ROWS = 1024
# From so many rows on they start out compact: more do not fit a screen with their numbers.
_COMPACT_ROWS = 64
# With so many a row of the compact map is three pixels high, so that a thousand of them are five screens.
_TINY_ROWS = 256
# Difference from the median rank as a share of the step: equal ranks differ by less than 1 %; 3 % and 10 % are where
# a finding becomes medium and high.
_LEVELS = (0.01, 0.03, 0.10, 0.30)
# A part that takes less of every rank's step is in no column.
_LEAST_PART = 0.005
_UNKNOWN = "–"
# So many slow sets of ranks are named in a row.
_MOST_SLOW = 3


@dataclass(frozen=True, slots=True)
class Column:
    """A column. kind: number (of a rank, node, place), time, share or text;  median: of a time, "" for others."""

    name: str
    meaning: str
    kind: str
    median: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A value; level: m1 to m4 above the median rank, l1 to l4 below it, "" near it or where there is no scale."""

    text: str
    level: str = ""


@dataclass(frozen=True, slots=True)
class HeatRow:
    """A rank."""

    rank: int
    reference: bool
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Dimension:
    """How unequal the places of one dimension are. least, most: (place, time); difference: share of the step."""

    name: str
    places: int
    least: tuple[str, str]
    most: tuple[str, str]
    difference: str
    even: bool


@dataclass(frozen=True, slots=True)
class LinkRow:
    """Sets of ranks that send equal messages. where: within a node or between nodes; slow: those that stand out."""

    where: str
    sets: int
    ranks: int
    usual: str
    least: str
    most: str
    slow: str


@dataclass(frozen=True, slots=True)
class Heat:
    """The map. unit: of all times; said: what stands out, one sentence each."""

    unit: str
    steps: int
    columns: tuple[Column, ...]
    rows: tuple[HeatRow, ...]
    left_out: int
    compact: bool
    tiny: bool
    said: tuple[str, ...]
    dimensions: tuple[Dimension, ...]
    no_mesh: bool
    why: str
    links: tuple[LinkRow, ...]


@dataclass(frozen=True, slots=True)
class _Times:
    """A column of times in µs, one for each rank; None where not known."""

    name: str
    meaning: str
    us: tuple[float | None, ...]


def heat(report: Report) -> Heat | None:
    """The map of a report, None where its ranks were not compared."""
    job = report.compared
    if job is None or job.step_us <= 0:
        return None
    of_rank = {rank.rank: rank for rank in report.ranks}
    ranks = [of_rank[one.rank] for one in job.ranks]
    _, unit = duration_unit(job.step_us)
    times = tuple(_times(job, ranks))
    coloured = [_cells(column, job.step_us) for column in times]
    columns = [*_fact_columns(job), *(_column(one, job.step_us) for one in times), *_last_columns(job)]
    rows = tuple(
        HeatRow(
            rank=one.rank,
            reference=one.rank == report.run.reference_rank,
            cells=(*_facts(job, one), *(cells[at] for cells in coloured), *_last(job, one)),
        )
        for at, one in enumerate(job.ranks)
    )
    kept = _kept(job, rows)
    return Heat(
        unit=unit,
        steps=job.steps,
        columns=tuple(columns),
        rows=kept,
        left_out=len(rows) - len(kept),
        compact=len(kept) > _COMPACT_ROWS,
        tiny=len(kept) > _TINY_ROWS,
        said=tuple(_compared_ranks.said(job)),
        dimensions=tuple(_dimensions(job)),
        no_mesh=not any(one.mesh for one in job.ranks),
        why=job.why,
        links=tuple(_links(job)),
    )


def _links(job: ComparedRanks) -> Iterator[LinkRow]:
    for one in job.links:
        slow = [f"ranks {_words.numbers(links.ranks)}" for links in one.slow[:_MOST_SLOW]]
        slow += [f"{len(one.slow) - _MOST_SLOW} more"] if len(one.slow) > _MOST_SLOW else []
        yield LinkRow(
            where={True: "Within a node", False: "Between nodes", None: "Nodes unknown"}[one.within],
            sets=one.sets,
            ranks=one.ranks,
            usual=_words.time_at(one.sent_us, job.step_us),
            least=_words.time_at(one.least_us, job.step_us),
            most=_words.time_at(one.most_us, job.step_us),
            slow="; ".join(slow) or "none",
        )


def _times(job: ComparedRanks, ranks: Sequence[RankSummary]) -> Iterator[_Times]:
    """Step time and waiting, then parts of the step that any rank spends time in."""
    parts = [{item.id: item for item in rank.breakdown} for rank in ranks]
    yield _Times(
        "Step", "time of a profiled step", tuple(sum(i.us for i in of.values()) if of else None for of in parts)
    )
    yield _Times("Own work", "the step without exposed communication", tuple(one.own_us for one in job.ranks))
    if not job.why:
        waits = "of the communication: only waits for ranks that join a collective later"
        awaited = "the longest time that another rank waits for this one"
        yield _Times("Others wait", awaited, tuple(one.awaited_us for one in job.ranks))
        yield _Times("Waits for ranks", waits, tuple(one.waits_us for one in job.ranks))
    for name in dict.fromkeys(name for of in parts for name in of):
        if max(of[name].share for of in parts if name in of) >= _LEAST_PART:
            label = _labels.part(name)
            yield _Times(label.name, label.meaning, tuple(of[name].us if name in of else 0.0 for of in parts))


def _median(us: Sequence[float | None]) -> float:
    return statistics.median(known) if (known := [one for one in us if one is not None]) else 0.0


def _column(times: _Times, step_us: float) -> Column:
    return Column(times.name, times.meaning, "time", _number(_median(times.us), step_us))


def _number(us: float, step_us: float) -> str:
    """A time in the unit of the map, without it."""
    return _words.time_at(us, step_us).partition(" ")[0]


def _cells(times: _Times, step_us: float) -> tuple[Cell, ...]:
    median = _median(times.us)
    return tuple(
        Cell(_UNKNOWN) if us is None else Cell(_number(us, step_us), _level((us - median) / step_us)) for us in times.us
    )


def _level(share: float) -> str:
    level = sum(abs(share) >= least for least in _LEVELS)
    return f"{'m' if share > 0 else 'l'}{level}" if level else ""


def _kinds(job: ComparedRanks) -> list[str]:
    return [kind for kind in _labels.DIMENSIONS if any(kind in one.mesh for one in job.ranks)]


def _has_nodes(job: ComparedRanks) -> bool:
    return any(one.node is not None for one in job.ranks)


def _fact_columns(job: ComparedRanks) -> list[Column]:
    names = ["node"] * _has_nodes(job) + _kinds(job)
    return [Column(_labels.dimension(name).name, _labels.dimension(name).meaning, "number") for name in names]


def _facts(job: ComparedRanks, one: ComparedRank) -> list[Cell]:
    values = [one.node] * _has_nodes(job) + [one.mesh.get(kind) for kind in _kinds(job)]
    return [Cell(_UNKNOWN if value is None else str(value)) for value in values]


def _last_columns(job: ComparedRanks) -> tuple[Column, ...]:
    known = (
        Column("Waits most for", "the rank that it waits for longest", "number"),
        Column("Last", "share of the collectives that it joins last", "share"),
    )
    return (*known * (not job.why), Column("Takes more", "the part that exceeds the median rank the most", "text"))


def _last(job: ComparedRanks, one: ComparedRank) -> tuple[Cell, ...]:
    known = (
        Cell(_UNKNOWN if one.waits_for is None else str(one.waits_for)),
        Cell(_UNKNOWN if one.last_share is None else _words.share(one.last_share)),
    )
    return (*known * (not job.why), Cell(_labels.part(one.more).name if one.more else _UNKNOWN))


def _kept(job: ComparedRanks, rows: tuple[HeatRow, ...]) -> tuple[HeatRow, ...]:
    """The rows that fit: those that others wait for, those with the most work, and the one that stands for the job."""
    if len(rows) <= _MOST_ROWS:
        return rows
    order = sorted(
        range(len(rows)),
        key=lambda at: (not rows[at].reference, -(job.ranks[at].awaited_us or 0.0), -job.ranks[at].own_us),
    )
    chosen = set(order[:_MOST_ROWS])
    return tuple(row for at, row in enumerate(rows) if at in chosen)


def _dimensions(job: ComparedRanks) -> Iterator[Dimension]:
    for kind in dict.fromkeys(one.kind for one in job.groups):
        places = sorted((one for one in job.groups if one.kind == kind), key=lambda one: (one.own_us, one.index))
        share = (places[-1].own_us - places[0].own_us) / job.step_us
        yield Dimension(
            name=_labels.dimension(kind).name,
            places=len(places),
            least=(str(places[0].index), _words.time_at(places[0].own_us, job.step_us)),
            most=(str(places[-1].index), _words.time_at(places[-1].own_us, job.step_us)),
            difference=_words.share(share),
            even=share < _LEVELS[0],
        )
