"""What may be promised where one of few steps is far longer than the others, and cannot be told to be unusual."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from advisor.analyses.base.steps import Steps
from advisor.analyses.step.breakdown import Breakdown
from advisor.model import Finding, Outcome
from advisor.trace.intervals import intersect, total

_WHY = "no number: most of this time lies in one of the recorded steps, which takes far longer than the others"
# What the longer step has of a part this many times as often as the others have on average is its own.
_FAR_MORE = 2.0


def parts_of_it(steps: Steps, breakdown: Breakdown | None) -> frozenset[str]:
    """Waits of the device that lie mostly in the odd step: more than in all others, and far more than in each."""
    if steps.odd is None or breakdown is None:
        return frozenset()
    # Where the host is ahead, the device does a step's work up to the end of the next one.
    last = min(steps.odd + steps.is_ahead, steps.count - 1)
    span = np.array([[steps.spans[steps.odd, 0], steps.spans[last, 1]]])
    found = set()
    for part, spans in breakdown.intervals.items():
        mine, others = total(intersect(spans, span)), total(spans) - total(intersect(spans, span))
        if part.startswith(("idle_", "exposed_")) and mine > max(others, _FAR_MORE * others / (steps.count - 1)):
            found.add(part)
    return frozenset(found)


def without_promise(outcome: Outcome, parts: frozenset[str]) -> Outcome:
    """The outcome without savings of time that lies mostly in the odd step: the diagnosis stands."""
    if not parts:
        return outcome
    return replace(outcome, findings=tuple(_without(finding, parts) for finding in outcome.findings))


def _without(finding: Finding, parts: frozenset[str]) -> Finding:
    if not finding.saving or finding.run_us is not None or not finding.claims or not parts.issuperset(finding.claims):
        return finding
    return replace(finding, saving=None, facts={**finding.facts, "saving": _WHY}, at_most="low")
