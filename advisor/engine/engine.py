"""Joins traces, analyses and rules into a Report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from advisor.analyses.base.device import Device
from advisor.analyses.base.launched import Launched
from advisor.analyses.base.links import Links
from advisor.analyses.base.scale import Scale
from advisor.analyses.base.steps import Steps
from advisor.analyses.base.watched_run import WatchedRun
from advisor.analyses.costs import checked_ranges
from advisor.analyses.costs.device_line_shares import DeviceLineShares
from advisor.analyses.costs.line_shares import LineShares
from advisor.analyses.costs.plain_breakdown import PlainBreakdown
from advisor.analyses.costs.replay import EditedSaving, Replay, ReplayedSaving
from advisor.analyses.costs.replay import together as replayed_together
from advisor.analyses.lines.lines import LinesTrace
from advisor.analyses.matching.cut_iterations import closed
from advisor.analyses.step.breakdown import Breakdown
from advisor.analyses.step.gpu_idle import GpuIdle
from advisor.analyses.step.ops import Ops
from advisor.analyses.step.step_counts import StepCounts
from advisor.capture.record import RankRecord, RunRecord
from advisor.computed import Computed
from advisor.engine import (
    detailed_ranks,
    diagnosis,
    joint,
    merge,
    one_odd_step,
    severity,
    told_once,
    two_threads,
    unsteady,
    waiting_ranks,
    whole_window,
)
from advisor.engine.ask_rules import apply, choose, ignored, of_job
from advisor.engine.config import Config
from advisor.engine.rank_result import RankDetail, RankResult
from advisor.engine.reduced_form import detail_of
from advisor.engine.registry import Rules
from advisor.engine.rule import Rule
from advisor.model import (
    BreakdownItem,
    Health,
    Outcome,
    ProfiledWindow,
    RankSummary,
    Report,
    RunInfo,
    Saving,
    StepsSummary,
)
from advisor.ranks import deduct_waiting, unlike
from advisor.ranks.collectives import Talks
from advisor.ranks.rank_facts import RankFacts
from advisor.ranks.ranks import Ranks
from advisor.report import (
    compared_ranks,
    health,
    later_windows,
    memory_view,
    metrics,
    module_view,
    timeline_view,
    what_if,
)
from advisor.trace.events import Trace

# Fixes replayed together; beyond the largest twenty the rest would not be seen in the sum.
_MOST_EDITS = 20
# Points of the step strip: enough to see a tail, small enough for the page.
_SERIES_LIMIT = 500


class RankInput(Struct, frozen=True, eq=False):
    """One trace of a job with what is known besides it. watch: told the name of each analysis when its turn comes.

    later: the windows that the rank recorded after this one; may be lazy. Of such a one at is the number of training
    iterations before it, and why says why it was recorded (as in `LaterWindow` of run.json).
    """

    rank: int
    file: str
    trace: Trace
    record: RankRecord | None = None
    lines: Trace | None = None
    watch: Callable[[str], None] | None = None
    later: Iterable[RankInput] = ()
    at: int = 0
    why: str = ""


def analyse(
    inputs: Iterable[RankInput],
    rules: Rules,
    config: Config,
    run: RunRecord | None = None,
    about_job: Sequence[Health] = (),
    gpus: Sequence[str] = (),
) -> Report:
    """The report of one job. `inputs` may be lazy: each trace is dropped once it is reduced.

    about_job: what is known about the job as a whole (ranks that are missing, files left aside).
    gpus: names of other accelerators: what would the step take there?
    """
    single = rules_of_ranks(rules, config)
    return joined([reduce(one, single, config, gpus) for one in inputs], rules, config, run, about_job)


def rules_of_ranks(rules: Rules, config: Config) -> list[Rule]:
    """The chosen rules that are asked of each rank, in the order in which their outcomes come."""
    if not rules.rules:
        raise RuntimeError("no rules were found; the installation is broken, reinstall torch-advisor")
    return [rule for rule in choose(rules, config) if not of_job(rule)]


def joined(
    results: Sequence[RankResult],
    rules: Rules,
    config: Config,
    run: RunRecord | None = None,
    about_job: Sequence[Health] = (),
    detail: Sequence[int] = (),
) -> Report:
    """The report of a job from what is left of its ranks, at least one; arguments as of `analyse`.

    detail: ranks to show in full besides those that `detailed_ranks` chooses
    """
    reference = _reference(results)
    step_us, steps = reference.step_us, reference.summary.steps
    ranks = _side_by_side(results, reference)
    if ranks is not None:
        ranks, mixed = unlike.without_waiting(ranks)
        if mixed:
            about_job = (*about_job, Health("ranks-unlike", "warning", f"{mixed}: who waited for whom is not told"))
    outcomes = _outcomes_of_job(results, reference, ranks, rules, config)
    accepted = [(o.rule, f) for o in outcomes if o.confirmed for f in o.findings if f.recoverable and f.run_us is None]
    together = joint.joint(accepted, reference.known_us, step_us, reference.replayed) if step_us > 0 else None
    compared = compared_ranks.compared(ranks, {one.summary.rank: one.summary.file for one in results})
    shown = detail_of(reference)
    checked = checked_ranges.are_checked(reference.summary)
    ranged = (
        whole_window.of_outcome(checked_ranges.of_outcome(one, step_us, steps.repeats, checked), steps.source)
        for one in outcomes
    )
    report = Report(
        run=_run_info(run, reference, results),
        health=health.of_job(run, about_job, (said for result in results for said in result.health)),
        steps=steps,
        metrics=reference.summary.metrics,
        breakdown=reference.summary.breakdown,
        outcomes=told_once.named_once([severity.settled(outcome, step_us) for outcome in ranged], step_us),
        joint=whole_window.of_joint(checked_ranges.of_joint(together, step_us, steps.repeats, checked), steps.source),
        replay=shown.replay,
        ranks=tuple(result.summary for result in results),
        timeline=shown.timeline,
        kernels=shown.kernels,
        ops=shown.ops,
        counters=shown.counts.counters if shown.counts else (),
        lines=shown.counts.lines if shown.counts else (),
        line_marks=shown.counts.line_marks if shown.counts else {},
        line_shares=shown.line_shares,
        what_if=shown.what_if,
        account=shown.account,
        windows=shown.windows,
        memory=shown.memory,
        modules=shown.modules or next((detail_of(result).modules for result in results if result.has_modules), None),
        compared=compared,
        details=detailed_ranks.detailed(compared, results, reference, detail),
    )
    return whole_window.in_words(report)


def _outcomes_of_job(
    results: Sequence[RankResult], reference: RankResult, ranks: Ranks | None, rules: Rules, config: Config
) -> list[Outcome]:
    """What all rules say of the job, by rule: of its ranks, joined, and of the ranks side by side."""
    own = [merge.brought_to(reference.step_us, result.outcomes, result.step_us) for result in results]
    merged = merge.merged_outcomes(own, next(one for one, of in zip(own, results, strict=True) if of is reference))
    world = max([len(results), *((one.facts.world_size or 1) for one in results if one.facts)])
    meet = any(result.facts is not None and len(result.facts.talks) > 0 for result in results)
    merged = list(waiting_ranks.bounded(merged, len(results), world, meet))
    comparing = [rule for rule in choose(rules, config) if of_job(rule)]
    of_ranks = list(_of_job(comparing, ranks, results, reference, config))
    waits_us = ranks.waits_us if ranks else 0.0
    outcomes = [
        *deduct_waiting.without_waiting(merged, of_ranks, reference.known_us, waits_us, reference.step_us),
        *of_ranks,
        *(Outcome(broken.rule, "error", reason=broken.reason) for broken in rules.broken),
        *ignored(rules, config),
    ]
    return sorted(outcomes, key=lambda outcome: outcome.rule)


def _side_by_side(results: Sequence[RankResult], reference: RankResult) -> Ranks | None:
    """The ranks of a job, None where it has only one here."""
    here = [(result.summary.rank, result.facts) for result in results if result.facts is not None]
    if len(here) < 2:
        return None
    at = next((i for i, (_, facts) in enumerate(here) if facts is reference.facts), 0)
    return Ranks.of([rank for rank, _ in here], [facts for _, facts in here], at)


def _of_job(
    rules: Sequence[Rule], ranks: Ranks | None, results: Sequence[RankResult], reference: RankResult, config: Config
) -> Iterator[Outcome]:
    """What the rules that compare ranks say. A job of one rank has nothing to compare, and is in order."""
    facts = [result.facts for result in results if result.facts is not None]
    alone = not any((one.world_size or 1) > 1 for one in facts)
    for rule in rules:
        if ranks is None and alone:
            yield Outcome(rule.id, "clear", title=rule.title, confirmed=bool(rule.confirmed), page=rule.page)
            continue
        everywhere = tuple(result.summary.rank for result in results)
        found = apply(rule, Computed(ranks=ranks), config.thresholds.get(rule.id, {}), everywhere)
        yield severity.of_outcome(found, reference.step_us, reference.known_us)


def reduce(one: RankInput, rules: Sequence[Rule], config: Config, gpus: Sequence[str] = ()) -> RankResult:
    """What is left of one rank; rules: those of `rules_of_ranks`."""
    computed = _computed(one)
    steps = computed.get(Steps)
    scale = computed.get(Scale)
    outcomes = _asked(one, rules, computed, config)
    plain = computed.find(PlainBreakdown) or computed.find(Breakdown)
    items: tuple[BreakdownItem, ...] = plain.items if plain else ()
    known_us = {item.id: item.us * scale.factor for item in items}
    device, ops, replay = computed.get(Device), computed.find(Ops), computed.find(Replay)
    outcomes = told_once.counted_once(
        _borne_out(outcomes, computed, known_us), replay, scale.step_us, known_us, _least_shares(rules, config)
    )
    watched = computed.find(WatchedRun)
    lines = computed.find(LineShares) or computed.find(DeviceLineShares)
    modules = module_view.modules(computed, one.rank, one.record)
    return RankResult(
        summary=RankSummary(
            rank=one.rank,
            file=one.file,
            metrics=metrics.measure(computed),
            steps=_steps_summary(steps, scale, one.record),
            breakdown=items,
        ),
        outcomes=tuple(map(_plain, outcomes)),
        health=health.of_rank(one.trace, one.record, steps, scale, device, replay, computed.get(Launched))
        + health.of_clocks(one.trace, computed.find(Links))
        + health.of_gaps(steps, computed.find(Links), computed.find(GpuIdle)),
        devices=(device.name,) if device.name else (),
        step_us=scale.step_us,
        known_us=known_us,
        replayed=_replayed_together(replay, outcomes),
        facts=computed.find(RankFacts) if _has_peers(one, computed) else None,
        has_modules=modules is not None,
        detail=RankDetail(
            timeline=timeline_view.timeline(computed),
            kernels=ops.kernels if ops else (),
            ops=ops.top if ops else (),
            counts=computed.find(StepCounts),
            replay=replay.check if replay else None,
            what_if=tuple(what_if.on(computed, name) for name in gpus),
            modules=modules,
            account=watched.account if watched else None,
            windows=tuple(_windows(one, computed)),
            memory=memory_view.memory(computed, one.rank, modules),
            line_shares=lines.lines if lines else (),
        ),
    )


def _least_shares(rules: Sequence[Rule], config: Config) -> dict[str, float]:
    """Rule id -> share of the step below which it reports nothing, of the rules that have such a threshold."""
    chosen = {rule.id: {**rule.thresholds, **config.thresholds.get(rule.id, {})}.get("min_share") for rule in rules}
    return {rule: share for rule, share in chosen.items() if isinstance(share, int | float)}


def _windows(one: RankInput, computed: Computed) -> Iterator[ProfiledWindow]:
    """The windows of a rank, where there are several; the first one first."""
    known = (
        [step for file in one.record.files if file.role == "profile" for step in file.steps.values()]
        if one.record
        else []
    )
    for number, later in enumerate(one.later):
        if not number:
            yield later_windows.window(computed, min(known, default=0), "first")
        yield later_windows.window(_computed(later), later.at, later.why, computed)


def _computed(one: RankInput) -> Computed:
    lines = LinesTrace(one.lines) if one.lines else None
    return Computed(one.watch, trace=closed(one.trace), record=one.record, lines=lines)


def _borne_out(outcomes: Sequence[Outcome], computed: Computed, known_us: dict[str, float]) -> tuple[Outcome, ...]:
    """The outcomes of a rank, with no promise that its steps and their replay do not bear out.

    known_us: µs of each part of the un-profiled step
    """
    steps, scale = computed.get(Steps), computed.get(Scale)
    breakdown, replay = computed.find(Breakdown), computed.find(Replay)
    if not steps.startup.steady:
        outcomes = tuple(map(unsteady.without_promise, outcomes))
    of_odd = one_odd_step.parts_of_it(steps, breakdown)
    outcomes = tuple(one_odd_step.without_promise(outcome, of_odd) for outcome in outcomes)
    outcomes = tuple(
        severity.of_outcome(diagnosis.measured(o, known_us, scale.factor), scale.step_us, known_us) for o in outcomes
    )
    if replay is not None and not replay.trusted and breakdown is not None and breakdown.on_device:
        outcomes = tuple(map(diagnosis.without_models, outcomes))
    return tuple(outcomes)


def _asked(one: RankInput, rules: Sequence[Rule], computed: Computed, config: Config) -> tuple[Outcome, ...]:
    """What each rule says of a trace; of a large one two threads ask, unless only some rules were asked for."""

    def ask(rule: Rule) -> Outcome:
        return apply(rule, computed, config.thresholds.get(rule.id, {}), one.rank)

    if not config.select and two_threads.is_worth_it(len(one.trace.events)):
        return two_threads.of_two_threads(rules, computed, ask)
    return tuple(map(ask, rules))


def _has_peers(one: RankInput, computed: Computed) -> bool:
    """Whether other ranks may belong to this trace: it says so, or it communicates."""
    world = one.record.world_size if one.record else one.trace.meta.world_size
    if world is not None:
        return world > 1
    talks = computed.find(Talks)
    return one.rank > 0 or bool(talks and len(talks))


def _replayed_together(replay: Replay | None, outcomes: Sequence[Outcome]) -> Saving | None:
    """What the accepted fixes that were replayed one by one give back at once; None where there are none."""
    findings = [f for o in outcomes if o.confirmed for f in o.findings if f.recoverable]
    savings = [f.saving for f in findings if isinstance(f.saving, ReplayedSaving)]
    if replay is None or not savings:
        return None
    largest = sorted(savings, key=lambda saving: -saving.high_us)[:_MOST_EDITS]
    return replayed_together(replay, largest)


def _plain(outcome: Outcome) -> Outcome:
    """The outcome without the edits behind its savings: they speak of rows of this one trace."""
    findings = (
        replace(f, saving=f.saving.plain()) if isinstance(f.saving, EditedSaving) else f for f in outcome.findings
    )
    return replace(outcome, findings=tuple(findings))


def _reference(results: Sequence[RankResult]) -> RankResult:
    """The real rank that stands for the job: that of median step time."""
    ordered = sorted(results, key=lambda result: (result.step_us, result.summary.rank))
    return ordered[(len(ordered) - 1) // 2]


def _steps_summary(steps: Steps, scale: Scale, record: RankRecord | None) -> StepsSummary:
    profiled, unprofiled = scale.profiled, scale.unprofiled
    series = record.steps.unprofiled_us if record else []
    dilation = profiled.median / unprofiled.median if profiled.median and unprofiled.median else None
    host_us, device_us = steps.usual_us
    return StepsSummary(
        count=steps.count,
        source=steps.source,
        eval_count=steps.eval_count,
        profiled_us=profiled,
        unprofiled_us=unprofiled,
        dilation=dilation,
        repeats=scale.repeats,
        host_us=host_us,
        device_us=device_us,
        startup_us=steps.startup.us,
        startup_count=steps.startup.steps,
        steady=steps.startup.steady,
        series_us=tuple((series or steps.profiled_us)[:_SERIES_LIMIT]),
    )


def _run_info(run: RunRecord | None, reference: RankResult, results: Sequence[RankResult]) -> RunInfo:
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
        # Ranks may run on machines with different files; the first one's are those that lie where the report is made.
        sources=next((dict(rank.file_digests) for rank in record.ranks if rank.file_digests), {}),
    )
