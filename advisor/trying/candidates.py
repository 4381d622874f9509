"""What can be tried of a report's findings, in the order of what they promise, and why the others cannot."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from advisor.fixing.edits import NoEditError
from advisor.model import Finding, Report, Risk, Treatment, Trial


@dataclass(frozen=True, slots=True)
class Candidate:
    """A change that needs no edit. low, high: the promised saving as a share of the step; None without a promise."""

    title: str
    treatments: tuple[Treatment, ...]
    rules: tuple[str, ...] = ()
    risk: Risk = "exact"
    low: float | None = None
    high: float | None = None

    @property
    def promise(self) -> float:
        """The middle of the promised range; without one behind all that have one."""
        return -1.0 if self.low is None or self.high is None else (self.low + self.high) / 2


# The diff of a finding's fix; raises NoEditError where none can be written.
DiffOf = Callable[[Finding], str]


def of_report(
    report: Report, only: Collection[str] = (), diff_of: DiffOf | None = None
) -> tuple[list[Candidate], list[Trial]]:
    """Candidates, the largest promise first, and the findings that cannot be tried, each with its reason.

    diff_of: fixes without a treatment are tried as patches that it writes; without it they are not tried.
    Every pair of runs costs about the same time, so that the largest promise is also the largest for its time. Several
    findings that ask for the same change are one candidate with the largest of their promises.
    """
    found: dict[str, Candidate] = {}
    others = []
    for outcome, finding in report.findings():
        if only and outcome.rule not in only:
            continue
        reason = _why_not(finding)
        one = None
        if not reason:
            one, reason = _candidate(report, outcome.rule, finding, diff_of)
        if one is None:
            title = finding.fix.title if finding.fix else outcome.title or finding.message
            risk = finding.fix.risk if finding.fix else "exact"
            others.append(Trial(title, "not tried", reason, (outcome.rule,), risk))
            continue
        known = found.get(str(one.treatments))
        if known is None:
            found[str(one.treatments)] = one
        elif outcome.rule not in known.rules:
            best = max(known, one, key=lambda candidate: candidate.promise)
            found[str(one.treatments)] = replace(best, rules=(*known.rules, outcome.rule))
    return sorted(found.values(), key=lambda one: -one.promise), others


def _why_not(finding: Finding) -> str:
    if not finding.recoverable:
        return "the cause lies outside the script"
    if finding.fix is None:
        return "no general fix is known"
    if finding.fix.risk == "semantics":
        return "the fix changes the training itself; edit the script, and measure it with `advisor gate`"
    return ""


def _candidate(report: Report, rule: str, finding: Finding, diff_of: DiffOf | None) -> tuple[Candidate | None, str]:
    """The finding's fix as a change that can be tried, or why it is none."""
    fix, saving = finding.fix, finding.saving
    assert fix is not None
    treatment, reason = fix.treatment, "the fix is an edit to the script; try it with `--patch`"
    if treatment is None and fix.edit and diff_of:
        try:
            treatment = Treatment("patch", {"diffs": [diff_of(finding)], "names": [], "edit": fix.edit.name})
        except NoEditError as failure:
            reason = f"{reason} ({failure})"
    if treatment is None:
        return None, reason
    # Pairs are timed with what lies between steps, so a saving there is a share of the run.
    step_us = finding.run_us or report.step_us
    ends = (saving.low_us / step_us, saving.high_us / step_us) if saving and step_us else (None, None)
    return Candidate(fix.title, (treatment,), (rule,), fix.risk, *ends), ""
