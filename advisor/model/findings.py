"""What rules found, and what to change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from msgspec import Struct, field

from advisor.model.savings import Saving
from advisor.model.source import Source

Severity = Literal["high", "medium", "low"]
Status = Literal["found", "clear", "skipped", "error"]
Risk = Literal["exact", "draws", "numerics", "semantics"]
_RISKS: tuple[Risk, ...] = ("exact", "draws", "numerics", "semantics")  # what changes least comes first
# A fix that changes less comes first if it may save at least so much of what the other may: with less, it is a detail.
_WORTH_FIRST = 0.5


class Treatment(Struct, frozen=True):
    """A change that `advisor try` makes in the script's process, without an edit.

    name       a key of `advisor.capture.inside.treatments.apply.TREATMENTS`, or `environment`
    arguments  plain data; of `environment`: variables, None unsets one
    """

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


class Fix(Struct, frozen=True):
    """What to change: lines to copy, and what the change risks.

    risk       exact: same numbers; draws: samples draw other random numbers, as with another seed; numerics: results
               differ by rounding; semantics: the training itself changes
    treatment  the same change without an edit, if there is one
    edit       the change as `advisor.fixing.edits` writes it into the script, where the treatment does not say that:
               there is none, or a framework has an argument of its own for it
    """

    title: str
    risk: Risk
    before: str = ""
    after: str = ""
    treatment: Treatment | None = None
    edit: Treatment | None = None


class Finding(Struct, frozen=True):
    """One thing to change, as found in this run.

    A rule sets everything but `severity` (the engine derives it from the step), `measured_us` and `ranks`.

    message      one sentence: what was found in this run, with numbers
    saving       None if no reliable number can be computed
    where        the user's lines, most expensive first
    facts        the evidence, name -> value; names end in units (`idle_us`, `h2d_bytes`)
    recoverable  False if the user cannot change the cause (shown, never counted as a saving)
    claims       breakdown ids whose time this fix would shrink, that of most of it first; limits the saving and the
                 joint saving
    at_most      the highest severity allowed, if a fact that could justify the code is unknown
    measured_us  the idle time or wait of the device, or the time between steps, on which the diagnosis is based,
                 however much the fix saves of it; µs per step on the scale of step_time_us; None for other findings
    counted_with the rule whose finding saves the same time, so that this one has no saving of its own; empty else
    run_us       if the fix shortens the run but not the profiled steps (time between steps, or later steps): the time
                 of the run per training step, of which the saving is a part; None if the saving is a part of the step
    """

    message: str
    saving: Saving | None = None
    where: tuple[Source, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    fix: Fix | None = None
    recoverable: bool = True
    claims: tuple[str, ...] = ()
    at_most: Severity = "high"
    severity: Severity = "low"
    measured_us: float | None = None
    counted_with: str = ""
    run_us: float | None = None
    ranks: tuple[int, ...] = ()


class Outcome(Struct, frozen=True):
    """The outcome of one rule: found, clear, skipped (`reason` says what to do) or error (one line)."""

    rule: str
    status: Status
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    title: str = ""
    confirmed: bool = True
    page: str = ""


# A fix is looked for from here on: less of a step is within the noise between steps.
_MATERIAL = 0.05


def finding_order(rule: str, finding: Finding, step_us: float | None = None) -> tuple[int, float, float, str, str]:
    """Sort key of findings: savings that are certain, then bounds ("up to"), then those without a number.

    Of bounds those on idle time or a wait of the device come first: that time was measured, and is lost whatever a
    change gives back, while kernels that might be shorter do what is asked of them. Within each the largest high end
    first, then the largest low end, then the rule id.
    """
    saving = finding.saving
    if saving is None:
        return (3, 0.0, 0.0, rule, finding.message)
    turn = 0
    if saving.is_bound(step_us):
        turn = 1 if step_us and _lost_us(finding) >= _MATERIAL * step_us else 2
    return (turn, -saving.high_us, -saving.low_us, rule, finding.message)


def _lost_us(finding: Finding) -> float:
    """Idle time or waits of the device that were measured: those of the diagnosis, or those that its saving is of."""
    if finding.run_us is not None:
        return 0.0
    of_idle_time = bool(finding.claims) and finding.claims[0].startswith("idle_")
    return max(finding.measured_us or 0.0, finding.saving.high_us if finding.saving and of_idle_time else 0.0)


def in_order(found: Iterable[tuple[Outcome, Finding]], step_us: float | None = None) -> list[tuple[Outcome, Finding]]:
    """Findings by `finding_order`, but of two that save the same time the one that changes less comes first."""
    by_saving = sorted(found, key=lambda pair: finding_order(pair[0].rule, pair[1], step_us))
    return least_changes_first(by_saving, step_us)


def least_changes_first(
    found: Iterable[tuple[Outcome, Finding]], step_us: float | None = None
) -> list[tuple[Outcome, Finding]]:
    """Findings in the order given, except that each comes before those that it `changes_less` than.

    So does a change of one place before one of the whole model, which saves the same part of the step.
    """
    placed: list[tuple[Outcome, Finding]] = []
    for pair in found:
        before = (
            at
            for at, other in enumerate(placed)
            if changes_less(pair, other, step_us) or _changes_one_place(pair[1], other[1], step_us)
        )
        placed.insert(next(before, len(placed)), pair)
    return placed


def changes_less(one: tuple[Outcome, Finding], other: tuple[Outcome, Finding], step_us: float | None = None) -> bool:
    """Whether a fix saves the same time as another, changes less of the training, and may save at least half as much.

    It is no less certain, nor less confirmed. The same time is that of a part of the step that both claim, or the time
    between steps, at a line that both name.
    """
    (outcome, finding), (than, rival) = one, other
    if outcome.rule == than.rule or not (finding.fix and rival.fix):
        return False
    if _RISKS.index(finding.fix.risk) >= _RISKS.index(rival.fix.risk) or outcome.confirmed < than.confirmed:
        return False
    return _saves_as_well(finding, rival, step_us) and _same_time(finding, rival)


def _saves_as_well(finding: Finding, rival: Finding, step_us: float | None) -> bool:
    """Whether a fix may save at least half as much as another, and no less certainly."""
    if not (finding.saving and rival.saving and finding.recoverable and rival.recoverable):
        return False
    less_certain = finding.saving.is_bound(step_us) and not rival.saving.is_bound(step_us)
    return finding.saving.high_us >= _WORTH_FIRST * rival.saving.high_us and not less_certain


# Treatments of all layers at once.
_EVERY_LAYER = ("compile", "autocast")


def _changes_one_place(finding: Finding, rival: Finding, step_us: float | None) -> bool:
    """Whether a fix changes one place, where another changes the whole model for the same part of the step."""
    if finding.fix is None or _treated(finding, *_EVERY_LAYER) or not _treated(rival, *_EVERY_LAYER):
        return False
    return _saves_as_well(finding, rival, step_us) and bool(set(finding.claims) & set(rival.claims))


def _treated(finding: Finding, *names: str) -> bool:
    treatment = finding.fix.treatment if finding.fix else None
    return treatment is not None and treatment.name in names


def of_whole_model(finding: Finding) -> bool:
    """Whether its fix changes the whole model at once, wherever the time is lost: a compiler does."""
    return _treated(finding, "compile")


def _same_time(one: Finding, other: Finding) -> bool:
    between_steps = one.run_us is not None
    if between_steps != (other.run_us is not None) or not (between_steps or set(one.claims) & set(other.claims)):
        return False
    lines = {(at.file, at.line) for at in one.where}
    return any((at.file, at.line) in lines for at in other.where)
