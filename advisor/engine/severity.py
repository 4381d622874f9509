"""How much a finding matters: by the share of the step that is certain."""

from __future__ import annotations

from msgspec.structs import replace

from advisor.model import Finding, Outcome, Severity, finding_order

_SEVERITIES: tuple[Severity, ...] = ("low", "medium", "high")
# Shares of the step from which a finding is high and medium: the design's own scale, near msprof's 5 % and 3 %.
_HIGH_SHARE, _MEDIUM_SHARE = 0.10, 0.03


def of_outcome(outcome: Outcome, step_us: float, known_us: dict[str, float]) -> Outcome:
    """The outcome with the severity of each finding. known_us: breakdown id -> µs on the scale of `step_us`."""
    return replace(outcome, findings=tuple(_severe(finding, step_us, known_us) for finding in outcome.findings))


def settled(outcome: Outcome, step_us: float) -> Outcome:
    """The outcome with the severity that the ranges have at last, and its findings in their order.

    Findings without a saving keep the severity that they had on their rank.
    """
    findings = (one if one.saving is None else _severe(one, step_us, {}) for one in outcome.findings)
    ordered = sorted(findings, key=lambda finding: finding_order(outcome.rule, finding, step_us))
    return replace(outcome, findings=tuple(ordered))


def _severe(finding: Finding, step_us: float, known_us: dict[str, float]) -> Finding:
    """The finding with its severity: by what its fix saves at least, or by the wait that was measured.

    A finding without a saving counts for the time that it concerns. It is never high, nor is a bound.
    """
    saving, cap = finding.saving, _SEVERITIES.index(finding.at_most)
    if saving is None:
        at_stake = sum(known_us.get(claim, 0.0) for claim in finding.claims)
    else:
        at_stake = max(saving.low_us, finding.measured_us or 0.0)
    if saving is None or saving.is_bound(step_us):
        cap = min(cap, 1)
    share = at_stake / step_us if step_us else 0.0
    level = 2 if share >= _HIGH_SHARE else 1 if share >= _MEDIUM_SHARE else 0
    return replace(finding, severity=_SEVERITIES[min(level, cap)])
