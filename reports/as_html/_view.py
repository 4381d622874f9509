"""What the page shows, worked out from the report before any markup."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from advisor.api import Metric, OpRow, Outcome, RankSummary, Report, Times, dataclass, significant

from .. import _labels, _line_shares, _ranking, _verdict, _words
from . import _charts, _details, _heat, _modules

# Rows of a table that help a reader; report.json holds the rest, and the page says so.
_ROWS = 20
_RANKS = 64
# What tells the ranks of a job apart.
_RANK_COLUMNS = (
    "step_time_us",
    "device_busy_share",
    "communication_share",
    "exposed_communication_share",
    "input_wait_share",
)


@dataclass(frozen=True, slots=True)
class Number:
    """A metric with its definition."""

    name: str
    value: str
    meaning: str


@dataclass(frozen=True, slots=True)
class RankRow:
    """A rank of the job: the values of the columns, and its breakdown bar."""

    rank: int
    file: str
    reference: bool
    values: tuple[str, ...]
    bar: tuple[_charts.Piece, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """Everything the template prints."""

    report: Report
    title: str
    said: _verdict.Headline
    reach: _verdict.Reach | None
    noun: str
    on_device: bool
    bar: tuple[_charts.Piece, ...]
    run_bar: tuple[_charts.Piece, ...]
    groups: _ranking.Groups
    timeline: _charts.DrawnTimeline | None
    strip: _charts.Strip | None
    steps: tuple[tuple[str, str], ...]
    line_shares: tuple[_line_shares.Row, ...]
    costliest_lines: tuple[_line_shares.Row, ...]
    lines: tuple[tuple[OpRow, str], ...]
    kernels: tuple[tuple[OpRow, str], ...]
    ops: tuple[tuple[OpRow, str], ...]
    modules: _modules.Modules | None
    rank_columns: tuple[str, ...]
    ranks: tuple[RankRow, ...]
    ranks_left_out: int
    heat: _heat.Heat | None
    details: tuple[_details.Detail, ...]
    undetailed: int
    measured: tuple[Number, ...]
    not_measured: tuple[tuple[str, tuple[str, ...]], ...]
    skipped: tuple[tuple[str, tuple[Outcome, ...]], ...]
    clear: tuple[Outcome, ...]
    errors: tuple[Outcome, ...]
    environment: tuple[tuple[str, str], ...]


def page(report: Report) -> Page:
    """The page of a report."""
    columns = _rank_columns(report)
    shown = _shown_ranks(report)
    return Page(
        report=report,
        title=_verdict.subject(report),
        said=_verdict.headline(report),
        reach=_verdict.reach(report),
        noun=_verdict.noun(report),
        on_device=_verdict.is_on_device(report),
        bar=_charts.bar(_verdict.parts(report)),
        run_bar=_charts.run_bar(report.account),
        groups=_ranking.groups(report),
        timeline=_charts.timeline(report.timeline),
        strip=_charts.strip(report),
        steps=_steps(report),
        line_shares=_line_shares.rows(report),
        costliest_lines=_line_shares.most(report),
        lines=_charts.rows([replace(row, name=_words.path(row.name)) for row in report.lines[:_ROWS]]),
        kernels=_charts.rows(report.kernels[:_ROWS]),
        ops=_charts.rows(report.ops[:_ROWS]),
        modules=_modules.modules(report),
        rank_columns=tuple(_labels.metric(column).name for column in columns),
        ranks=tuple(_rank_row(report, rank, columns) for rank in shown),
        ranks_left_out=len(report.ranks) - len(shown) if shown else 0,
        heat=_heat.heat(report),
        details=_details.details(report),
        undetailed=len(report.ranks) - len(report.details) - 1,
        measured=tuple(_number(metric) for metric in report.metrics.values() if metric.value is not None),
        not_measured=_not_measured(report),
        skipped=_skipped(report),
        clear=_ranking.with_status(report, "clear"),
        errors=_ranking.with_status(report, "error"),
        environment=_environment(report),
    )


def _steps(report: Report) -> tuple[tuple[str, str], ...]:
    """The step times as a table: name, value."""
    steps = report.steps
    rows = [("Steps in the profile", _words.count(steps.count)), ("Steps were found by", _labels.SOURCES[steps.source])]
    if steps.eval_count:
        rows.append(("Evaluation steps, not counted", _words.count(steps.eval_count)))
    for times, how in ((steps.unprofiled_us, "without the profiler"), (steps.profiled_us, "with the profiler")):
        rows.append((f"Step time {how}", _distribution(times)))
    if steps.dilation is not None:
        rows.append(("The profiler made steps", f"{significant(steps.dilation)} times as long"))
    if steps.repeats is not None:
        known = f"{significant(100 * steps.repeats)} %; the ranges of savings are widened by it"
        rows.append(("The step time varies by", known))
    return tuple(rows)


def _distribution(times: Times) -> str:
    known = (("median", times.median), ("mean", times.mean), ("p10", times.p10), ("p90", times.p90))
    values = [f"{name} {_words.time(value)}" for name, value in known if value is not None]
    if times.n == 1 and times.mean is not None:
        return f"{_words.time(times.mean)} (1 step)"
    return f"{', '.join(values)} ({_words.plural(times.n, 'step')})" if values else "not measured"


def _rank_columns(report: Report) -> tuple[str, ...]:
    """The columns that any rank measured."""
    measured = {name for rank in report.ranks for name, metric in rank.metrics.items() if metric.value is not None}
    return tuple(name for name in _RANK_COLUMNS if name in measured)


def _shown_ranks(report: Report) -> tuple[RankSummary, ...]:
    """The ranks of a job of several; the slowest and the reference where there are too many to show."""
    if len(report.ranks) < 2:
        return ()
    if len(report.ranks) <= _RANKS:
        return report.ranks
    ordered = sorted(report.ranks, key=lambda rank: (-_step_us(rank), rank.rank))
    reference = [rank for rank in ordered[_RANKS - 1 :] if rank.rank == report.run.reference_rank]
    kept = [*ordered[: _RANKS - len(reference)], *reference]
    return tuple(sorted(kept, key=lambda rank: rank.rank))


def _step_us(rank: RankSummary) -> float:
    metric = rank.metrics.get("step_time_us")
    return metric.value if metric and metric.value is not None else 0.0


def _rank_row(report: Report, rank: RankSummary, columns: Sequence[str]) -> RankRow:
    return RankRow(
        rank=rank.rank,
        file=_words.path(rank.file),
        reference=rank.rank == report.run.reference_rank,
        values=tuple(_value(rank.metrics.get(column)) for column in columns),
        bar=_charts.bar(rank.breakdown),
    )


def _value(metric: Metric | None) -> str:
    return "not measured" if metric is None or metric.value is None else _words.metric(metric.value, metric.unit)


def _number(metric: Metric) -> Number:
    label = _labels.metric(metric.id)
    return Number(label.name, _value(metric), label.meaning)


def _not_measured(report: Report) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Reasons, each with the metrics that were not measured for it."""
    grouped: dict[str, list[str]] = {}
    for metric in report.metrics.values():
        if metric.value is None:
            grouped.setdefault(_words.one_line(metric.why), []).append(_labels.metric(metric.id).name)
    return tuple((why, tuple(names)) for why, names in grouped.items())


def _skipped(report: Report) -> tuple[tuple[str, tuple[Outcome, ...]], ...]:
    """Reasons, each with the rules that were skipped for it."""
    grouped: dict[str, list[Outcome]] = {}
    for outcome in _ranking.with_status(report, "skipped"):
        grouped.setdefault(_words.one_line(outcome.reason), []).append(outcome)
    return tuple((reason, tuple(outcomes)) for reason, outcomes in grouped.items())


def _environment(report: Report) -> tuple[tuple[str, str], ...]:
    run = report.run
    rows = [("Command", _words.one_line(" ".join(map(_words.path, run.command)))), ("Devices", ", ".join(run.devices))]
    rows += [(name, version) for name, version in run.versions.items()]
    rows += [(name, value) for name, value in run.environment.items()]
    if run.world_size > 1:
        rows.append(("Ranks in the job", f"{run.world_size}; {len(report.ranks)} analyzed"))
    rows.append(("Files", ", ".join(map(_words.path, run.files[:8])) + (" …" if len(run.files) > 8 else "")))
    return tuple((name, _words.path(value)) for name, value in rows if value)
