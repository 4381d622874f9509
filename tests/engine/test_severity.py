"""Severity follows what is certain: the low end of a saving, or the wait that was measured."""

from __future__ import annotations

import pytest

from advisor.engine import severity
from advisor.model import Finding, Outcome, Saving

STEP_US = 1000.0


@pytest.mark.parametrize(
    ("low", "high", "measured", "said"),
    [
        (120, 400, None, "high"),
        (40, 400, None, "medium"),
        (6, 400, None, "low"),
        (0, 900, None, "low"),
        (4, 900, None, "low"),  # less than half a per cent: a bound
        (0, 300, 400, "medium"),  # the wait is certain, what the fix gives back is not
        (20, 300, 400, "high"),
    ],
)
def test_by_what_is_certain(low: float, high: float, measured: float | None, said: str) -> None:
    finding = Finding("m", Saving(low, high, "modelled", ""), measured_us=measured)
    for judge in (
        lambda outcome: severity.of_outcome(outcome, STEP_US, {}),
        lambda outcome: severity.settled(outcome, STEP_US),
    ):
        (found,) = judge(Outcome("r", "found", (finding,))).findings
        assert found.severity == said


def test_without_a_saving_the_time_that_it_concerns_counts_and_is_never_high() -> None:
    finding = Finding("m", claims=("idle_launch",))
    (found,) = severity.of_outcome(Outcome("r", "found", (finding,)), STEP_US, {"idle_launch": 500.0}).findings
    assert found.severity == "medium"
    assert severity.settled(Outcome("r", "found", (found,)), STEP_US).findings == (found,)


@pytest.mark.parametrize(
    ("measured_us", "run_us", "first"), [(60.0, None, "idle"), (40.0, None, "busy"), (60.0, 2000.0, "busy")]
)
def test_of_bounds_idle_time_that_was_measured_comes_first(
    measured_us: float, run_us: float | None, first: str
) -> None:
    """From 5 % of the step on, and of the step itself: what lies between steps is another quantity."""
    busy = Finding("busy", Saving(0, 500, "modelled", ""))
    idle = Finding("idle", Saving(0, 60, "modelled", ""), measured_us=measured_us, run_us=run_us)
    settled = severity.settled(Outcome("r", "found", (busy, idle)), STEP_US)
    assert settled.findings[0].message == first


def test_settled_findings_are_in_order() -> None:
    bound, certain = (Finding(word, Saving(low, 500, "modelled", "")) for word, low in (("bound", 0), ("certain", 50)))
    settled = severity.settled(Outcome("r", "found", (bound, certain)), STEP_US)
    assert [finding.message for finding in settled.findings] == ["certain", "bound"]
