"""How much a finding matters: by its share of the step."""

from __future__ import annotations

from dataclasses import replace

from advisor.model import Finding, Outcome, Severity

_SEVERITIES: tuple[Severity, ...] = ("low", "medium", "high")
# Shares of the step from which a finding is high and medium: the design's own scale, near msprof's 5 % and 3 %.
_HIGH_SHARE, _MEDIUM_SHARE = 0.10, 0.03


def of_outcome(outcome: Outcome, step_us: float, known_us: dict[str, float]) -> Outcome:
    """The outcome with the severity of each finding. known_us: breakdown id -> µs on the scale of `step_us`."""
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
