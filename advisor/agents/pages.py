"""A report as pages of findings for agents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from advisor.agents import results
from advisor.agents.results import LIMIT_BYTES, Findings, FindingView, Part, cut, digits
from advisor.fixing.edits import NoEditError
from advisor.fixing.patches import of_finding
from advisor.model import Finding, Outcome, Report, Saving

# Characters of what is shown of one finding, so that one at least fits.
_CODE, _DIFF, _PLACES, _REASONS = 500, 2500, 3, 4
_PARTS = 5


def page(report: Report, path: Path, offset: int) -> Findings:
    """The findings from `offset` on, as many as fit; the first page also says where the step goes."""
    found = report.findings()
    start = min(max(offset, 0), len(found))
    result = replace(_head(report, path, start), findings_in_all=len(found), next_step=_next_step(report, path, found))
    for place, (outcome, finding) in enumerate(found[start:], start=start):
        one = _view(report, outcome, finding)
        for view in (one, _short(one)):
            grown = replace(result, findings=[*result.findings, view], next_offset=place + 1)
            if results.size(grown) <= LIMIT_BYTES:
                result = grown
                break
            # A later page has room for all of it.
            if result.findings:
                return result
    return replace(result, next_offset=None)


def _head(report: Report, path: Path, start: int) -> Findings:
    metric = report.metrics.get("step_time_us")
    why = cut(f"because the step time was not measured: {metric.why if metric else 'no step was found'}")
    result = Findings(
        report=cut(path),
        step_ms=results.ms(report.step_us),
        steps=report.steps.count,
        cannot_answer=why if report.step_us is None else None,
    )
    if start:
        return result
    parts = sorted(report.breakdown, key=lambda item: -item.share)[:_PARTS]
    scale_us = report.step_us
    joint = report.joint
    return replace(
        result,
        parts=[
            Part(item.id, digits(item.share), digits((item.share * scale_us if scale_us else item.us) / 1000))
            for item in parts
        ],
        all_fixes=_saving(Saving(joint.low_us, joint.high_us, joint.basis, ""), None, scale_us) if joint else None,
        not_judged=_not_judged(report),
        warnings=[cut(item.message, 200) for item in report.health if item.status in ("warning", "error")][:_REASONS],
    )


def _not_judged(report: Report) -> list[str]:
    """What could not be judged, by reason: the most frequent reasons."""
    reasons: dict[str, list[str]] = {}
    for outcome in report.outcomes:
        if outcome.status in ("skipped", "error"):
            reasons.setdefault(outcome.reason, []).append(outcome.rule)
    ordered = sorted(reasons.items(), key=lambda pair: -len(pair[1]))
    return [cut(f"{_named(what)}: not measured: {why}", 240) for why, what in ordered[:_REASONS]]


def _named(rules: list[str]) -> str:
    return ", ".join(rules[:2]) + (f" and {len(rules) - 2} more" if len(rules) > 2 else "")


def _view(report: Report, outcome: Outcome, finding: Finding) -> FindingView:
    fix = finding.fix
    diff, no_diff = "", ""
    try:
        diff = of_finding(report, finding, Path.cwd())
    except (NoEditError, OSError, UnicodeDecodeError) as failure:
        no_diff = cut(failure)
    if len(diff) > _DIFF:
        diff, no_diff = "", f"longer than {_DIFF} characters; run `advisor fix --only {cut(outcome.rule, 60)}`"
    return FindingView(
        rule=cut(outcome.rule, 60),
        severity=finding.severity,
        message=cut(finding.message, 400),
        saving=_saving(finding.saving, finding.run_us, report.step_us),
        confirmed=outcome.confirmed,
        where=[cut(f"{one.file}:{one.line}", 200) for one in finding.where[:_PLACES]],
        fix=cut(fix.title) if fix else "",
        risk=fix.risk if fix else "",
        before=_code(fix.before) if fix else "",
        after=_code(fix.after) if fix else "",
        diff=diff,
        no_diff=no_diff,
        can_be_tried=bool(fix and finding.recoverable and (fix.treatment or diff)),
        counted_with=cut(finding.counted_with, 60),
    )


def _short(view: FindingView) -> FindingView:
    """The finding without lines of code, which its page has no room for."""
    return replace(view, before="", after="", diff="", no_diff="too long for one result; run `advisor fix`")


def _code(lines: str) -> str:
    return lines if len(lines) <= _CODE else ""


def _saving(saving: Saving | None, run_us: float | None, step_us: float | None) -> results.Saving | None:
    if saving is None:
        return None
    low_us = 0.0 if saving.is_bound(run_us or step_us) else saving.low_us
    per = "step of the run" if run_us else "step"
    return results.Saving(digits(low_us / 1000), digits(saving.high_us / 1000), per, saving.basis)


def _next_step(report: Report, path: Path, found: list[tuple[Outcome, Finding]]) -> str:
    if not found:
        return "nothing to change was found; not_judged lists what this run could not determine"
    rule = cut(found[0][0].rule, 60)
    return (
        f"apply the first finding's diff (or fix, at its lines), profile the changed script into another folder, and "
        f"compare {cut(path, 200)} with it; or measure it first: try(script, report, only='{rule}')"
    )
