"""What a finding has measured, apart from what its fix may save."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from advisor.model import Finding, Outcome

# Parts of the step in which the device idles or waits, each for a reason that rows of the trace show.
_EXPLAINED = frozenset({"idle_input", "idle_sync", "idle_launch", "idle_host", "exposed_communication", "exposed_copy"})
# Facts of findings that hold it, µs per profiled step.
_FACTS = ("idle_us", "idle_launch_us", "idle_after_us", "exposed_us", "waited_us")
_WHY = "no number: replaying the unchanged step differs from its measured time by more than 5 %"


def measured(outcome: Outcome, known_us: Mapping[str, float], factor: float) -> Outcome:
    """The outcome with the idle time or wait that each finding has measured, whatever its fix gives back.

    known_us: breakdown id -> µs on the scale of step_time_us;  factor: profiled µs to that scale.
    """
    return replace(outcome, findings=tuple(_measured(finding, known_us, factor) for finding in outcome.findings))


def _measured(finding: Finding, known_us: Mapping[str, float], factor: float) -> Finding:
    told = [value for name in _FACTS if isinstance(value := finding.facts.get(name), int | float)]
    # What it saves most of comes first; what other time goes with a wait that it measured is no part of that.
    waits = [claim for claim in finding.claims if claim in _EXPLAINED]
    if not waits or finding.claims[0] not in waits or (len(waits) < len(finding.claims) and not told):
        return finding
    us = told[0] * factor if told else finding.saving.high_us if finding.saving else None
    if us is None:
        return finding
    return replace(finding, measured_us=min(us, sum(known_us.get(claim, 0.0) for claim in waits)))


def without_models(outcome: Outcome) -> Outcome:
    """The outcome without savings that are modelled because the replay of this trace cannot be trusted.

    The diagnosis stands, with its severity; the number does not.
    """
    findings = (
        replace(f, saving=None, facts={**f.facts, "saving": _WHY}) if f.saving and f.saving.basis == "modelled" else f
        for f in outcome.findings
    )
    return replace(outcome, findings=tuple(findings))
