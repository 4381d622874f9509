"""Joins traces, analyses and rules into a Report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from advisor import health, joint, merge, metrics, timeline_view
from advisor.analyses.breakdown import Breakdown
from advisor.analyses.device import Device
from advisor.analyses.lines import LinesTrace
from advisor.analyses.ops import Ops
from advisor.analyses.replay import Replay, ReplayedSaving, together
from advisor.analyses.scale import Scale
from advisor.analyses.step_counts import StepCounts
from advisor.analyses.steps import Steps
from advisor.capture.record import RankRecord, RunRecord
from advisor.computed import Computed, Missing
from advisor.config import Config, known
from advisor.model import (
    BreakdownItem,
    Finding,
    Health,
    OpRow,
    Outcome,
    RankSummary,
    ReplayCheck,
    Report,
    RunInfo,
    Saving,
    Severity,
    StepsSummary,
    Timeline,
    finding_order,
)
from advisor.registry import Rules
from advisor.rule import Rule
from advisor.trace.events import Trace

_SEVERITIES: tuple[Severity, ...] = ("low", "medium", "high")
# Shares of the step from which a finding is high and medium: the design's own scale, near msprof's 5 % and 3 %.
_HIGH_SHARE, _MEDIUM_SHARE = 0.10, 0.03
# Fixes replayed together; beyond the largest twenty the rest would not be seen in the sum.
_MOST_EDITS = 20
# Points of the step strip: enough to see a tail, small enough for the page.
_SERIES_LIMIT = 500


@dataclass(frozen=True, slots=True, eq=False)
class RankInput:
    """One trace of a job with what is known besides it."""

    rank: int
    file: str
    trace: Trace
    record: RankRecord | None = None
    lines: Trace | None = None


@dataclass(frozen=True, slots=True)
class _RankResult:
    summary: RankSummary
    outcomes: tuple[Outcome, ...]
    health: tuple[Health, ...]
    timeline: Timeline | None
    kernels: tuple[OpRow, ...]
    ops: tuple[OpRow, ...]
    counts: StepCounts | None
    devices: tuple[str, ...]
    step_us: float
    known_us: dict[str, float]
    replay: ReplayCheck | None
    replayed: Saving | None  # what all accepted fixes with a replayed saving give back at once


def analyse(
    inputs: Iterable[RankInput],
    rules: Rules,
    config: Config,
    run: RunRecord | None = None,
    about_job: Sequence[Health] = (),
) -> Report:
    """The report of one job. `inputs` may be lazy: each trace is dropped once it is reduced.

    about_job: what is known about the job as a whole (ranks that are missing, files left aside).
    """
    if not rules.rules:
        raise RuntimeError("no rules were found; the installation is broken, reinstall torch-advisor")
    chosen = choose(rules, config)
    results = [_reduce(one, chosen, config) for one in inputs]
    reference = _reference(results)
    step_us = reference.step_us
    outcomes = merge.outcomes([result.outcomes for result in results], reference.outcomes)
    outcomes += [Outcome(broken.rule, "error", reason=broken.reason) for broken in rules.broken]
    outcomes += _ignored(rules, config)
    outcomes.sort(key=lambda outcome: outcome.rule)
    accepted = [(o.rule, f) for o in outcomes if o.confirmed for f in o.findings if f.recoverable]
    return Report(
        run=_run_info(run, reference, results),
        health=health.of_job(run, about_job, (said for result in results for said in result.health)),
        steps=reference.summary.steps,
        metrics=reference.summary.metrics,
        breakdown=reference.summary.breakdown,
        outcomes=tuple(outcomes),
        joint=joint.joint(accepted, reference.known_us, step_us, reference.replayed) if step_us > 0 else None,
        replay=reference.replay,
        ranks=tuple(result.summary for result in results),
        timeline=reference.timeline,
        kernels=reference.kernels,
        ops=reference.ops,
        counters=reference.counts.counters if reference.counts else (),
        lines=reference.counts.lines if reference.counts else (),
    )


def choose(rules: Rules, config: Config) -> list[Rule]:
    """The rules that the configuration leaves, after checking every id and threshold it names."""
    by_id = rules.by_id()
    ids = {*by_id, *(broken.rule for broken in rules.broken)}
    for name in (*config.select, *config.ignore, *config.thresholds):
        known(name, ids, "rule")
    for name, table in config.thresholds.items():
        for key in table if name in by_id else ():
            known(key, by_id[name].thresholds, f"threshold of {name}")
    return [r for r in rules.rules if (not config.select or r.id in config.select) and r.id not in config.ignore]


def _reduce(one: RankInput, rules: Sequence[Rule], config: Config) -> _RankResult:
    computed = Computed(trace=one.trace, record=one.record, lines=LinesTrace(one.lines) if one.lines else None)
    steps = computed.get(Steps)
    scale = computed.get(Scale)
    breakdown = computed.find(Breakdown)
    items: tuple[BreakdownItem, ...] = breakdown.items if breakdown else ()
    device = computed.get(Device)
    ops = computed.find(Ops)
    factor = scale.factor
    known_us = {item.id: item.us * factor for item in items}
    outcomes = tuple(apply(rule, computed, config.thresholds.get(rule.id, {}), one.rank) for rule in rules)
    replay = computed.find(Replay)
    replayed = _replayed_together(replay, outcomes)
    return _RankResult(
        summary=RankSummary(
            rank=one.rank,
            file=one.file,
            metrics=metrics.measure(computed),
            steps=_steps_summary(steps, scale, one.record),
            breakdown=items,
        ),
        outcomes=tuple(_with_severity(_plain(outcome), scale.step_us, known_us) for outcome in outcomes),
        health=health.of_rank(one.trace, one.record, steps, scale, device, replay),
        timeline=timeline_view.timeline(computed),
        kernels=ops.kernels if ops else (),
        ops=ops.top if ops else (),
        counts=computed.find(StepCounts),
        devices=(device.name,) if device.name else (),
        step_us=scale.step_us,
        known_us=known_us,
        replay=replay.check if replay else None,
        replayed=replayed,
    )


def _replayed_together(replay: Replay | None, outcomes: Sequence[Outcome]) -> Saving | None:
    """What the accepted fixes that were replayed one by one give back at once; None where there are none."""
    findings = [f for o in outcomes if o.confirmed for f in o.findings if f.recoverable]
    savings = [f.saving for f in findings if isinstance(f.saving, ReplayedSaving)]
    if replay is None or not savings:
        return None
    largest = sorted(savings, key=lambda saving: -saving.high_us)[:_MOST_EDITS]
    return together(replay, largest)


def _plain(outcome: Outcome) -> Outcome:
    """The outcome without the edits behind its savings: they speak of rows of this one trace."""
    findings = (
        replace(f, saving=f.saving.plain()) if isinstance(f.saving, ReplayedSaving) else f for f in outcome.findings
    )
    return replace(outcome, findings=tuple(findings))


def apply(rule: Rule, computed: Computed, thresholds: object, rank: int = 0) -> Outcome:
    """What one rule says of one trace; nothing that a rule does reaches the others."""
    base = Outcome(rule.id, "clear", title=rule.title, confirmed=bool(rule.confirmed), page=rule.page)
    try:
        options = dict(thresholds) if isinstance(thresholds, dict) else {}
        findings = tuple(replace(f, ranks=(rank,)) for f in rule.check(**computed.arguments(rule.check), **options))
    except Missing as reason:
        return replace(base, status="skipped", reason=str(reason))
    except Exception as failure:
        return replace(base, status="error", reason=_one_line(failure))
    if not findings:
        return base
    return replace(base, status="found", findings=tuple(sorted(findings, key=lambda f: finding_order(rule.id, f))))


def _with_severity(outcome: Outcome, step_us: float, known_us: dict[str, float]) -> Outcome:
    return replace(outcome, findings=tuple(_severe(finding, step_us, known_us) for finding in outcome.findings))


def _severe(finding: Finding, step_us: float, known_us: dict[str, float]) -> Finding:
    """The finding with its severity: by its saving, or, without one, by the time that it concerns (never high)."""
    at_stake = sum(known_us.get(claim, 0.0) for claim in finding.claims)
    share = (finding.saving.high_us if finding.saving else at_stake) / step_us if step_us else 0.0
    level = 2 if share >= _HIGH_SHARE else 1 if share >= _MEDIUM_SHARE else 0
    cap = _SEVERITIES.index(finding.at_most)
    if finding.saving is None:
        cap = min(cap, 1)
    return replace(finding, severity=_SEVERITIES[min(level, cap)])


def _ignored(rules: Rules, config: Config) -> Iterator[Outcome]:
    for rule in rules.rules:
        if rule.id in config.ignore:
            reason = config.ignore[rule.id] or "no reason given"
            text = f"ignored by {config.path or 'the command line'}: {reason}"
            yield Outcome(rule.id, "skipped", reason=text, title=rule.title, confirmed=bool(rule.confirmed))


def _reference(results: Sequence[_RankResult]) -> _RankResult:
    """The real rank that stands for the job: that of median step time."""
    ordered = sorted(results, key=lambda result: (result.step_us, result.summary.rank))
    return ordered[(len(ordered) - 1) // 2]


def _steps_summary(steps: Steps, scale: Scale, record: RankRecord | None) -> StepsSummary:
    profiled, unprofiled = scale.profiled, scale.unprofiled
    series = record.steps.unprofiled_us if record else []
    dilation = profiled.median / unprofiled.median if profiled.median and unprofiled.median else None
    return StepsSummary(
        count=steps.count,
        source=steps.source,
        eval_count=steps.eval_count,
        profiled_us=profiled,
        unprofiled_us=unprofiled,
        dilation=dilation,
        series_us=tuple((series or steps.profiled_us)[:_SERIES_LIMIT]),
    )


def _run_info(run: RunRecord | None, reference: _RankResult, results: Sequence[_RankResult]) -> RunInfo:
    record = run or RunRecord()
    world = max([len(results), *(rank.world_size for rank in record.ranks)])
    return RunInfo(
        command=tuple(record.command),
        versions=dict(record.versions),
        devices=tuple(sorted({device for result in results for device in result.devices})),
        reference_rank=reference.summary.rank,
        world_size=world,
        environment=dict(record.environment),
        files=tuple(result.summary.file for result in results),
    )


def _one_line(failure: BaseException) -> str:
    trace = failure.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    at = f" (line {trace.tb_lineno} of {trace.tb_frame.f_code.co_name})" if trace else ""
    return f"{type(failure).__name__}: {failure}".splitlines()[0] + at
