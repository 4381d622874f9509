"""Idle time that either of two changes would save is one saving."""

from __future__ import annotations

import pytest
from benchmarks.gpu.drawn_jobs import eighth_set, tenth_set
from drawn_loops import report

from advisor.model import Finding, Report


def drawn(of: object, name: str) -> tuple[Report, float]:
    """What is said of a job, and what it takes more than without its fault, µs."""
    job = next(one for one in of.JOBS if one.name == name)  # type: ignore[attr-defined]
    slow, fast = of.run(job), of.run(job, fixed=True)  # type: ignore[attr-defined]
    return report(slow.trace()), slow.step_us() - fast.step_us()


def of_rule(said: Report, rule: str) -> Finding:
    """The one finding of a rule."""
    (finding,) = [one for outcome, one in said.findings() if outcome.rule == rule]
    return finding


@pytest.mark.parametrize(
    ("of", "name", "first", "then"),
    [
        (eighth_set, "broken", "compiled-pieces", "sync-in-loop"),
        (tenth_set, "sampled", "input-bound", "sync-in-loop"),
    ],
)
def test_the_same_idle_time_counts_with_the_first_change(of: object, name: str, first: str, then: str) -> None:
    said, gain_us = drawn(of, name)
    owner, other = of_rule(said, first), of_rule(said, then)
    assert owner.saving is not None
    assert owner.saving.high_us == pytest.approx(gain_us, rel=0.05)
    assert other.saving is None
    assert f"`{first}` saves the same idle time" in other.facts["saving"]


def test_changes_of_different_idle_time_keep_what_they_save() -> None:
    said, _ = drawn(tenth_set, "sampled")
    copies = of_rule(said, "pageable-copies")
    assert copies.saving is not None
    assert "without what" not in copies.saving.how
