"""Idle time that either of two changes would save is one saving."""

from __future__ import annotations

import pytest
from benchmarks.gpu.drawn_jobs import eighth_set, tenth_set
from drawn_loops import report

from advisor.engine.told_once import idle_once, named_once
from advisor.model import Finding, Fix, Outcome, Report, Risk, Saving, Source, least_changes_first


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


def modelled(rule: str, high_us: float, *claims: str) -> Outcome:
    """A rule that found something that saves up to so much of these parts; nothing was replayed."""
    finding = Finding(f"{rule} found something.", Saving(0.0, high_us, "modelled", "high: all"), claims=claims)
    return Outcome(rule, "found", (finding,))


def test_without_a_replay_savings_of_a_part_are_no_more_than_it_holds() -> None:
    """One step: two changes claim the time before launches, one of them other idle time as well."""
    outcomes = (
        modelled("launch-bound", 600.0, "idle_launch"),
        modelled("sync-in-loop", 700.0, "idle_sync", "idle_launch"),
        modelled("input-bound", 300.0, "idle_input"),
    )
    parts_us = {"idle_launch": 600.0, "idle_sync": 200.0, "idle_input": 300.0}
    savings = [outcome.findings[0].saving for outcome in idle_once(outcomes, None, 2_000.0, parts_us)]
    highs = [saving.high_us if saving else None for saving in savings]
    # 700 of the 800 µs go to the wait, which saves most; what is left of launches is 100.
    assert highs == [100.0, 700.0, 300.0]


def test_without_a_replay_what_has_nothing_left_has_no_number() -> None:
    outcomes = (modelled("launch-bound", 600.0, "idle_launch"), modelled("sync-in-loop", 700.0, "idle_launch"))
    first, second = (one.findings[0] for one in idle_once(outcomes, None, 2_000.0, {"idle_launch": 700.0}))
    assert (first.saving, second.saving and second.saving.high_us) == (None, 700.0)
    assert "`sync-in-loop` saves the same idle time" in first.facts["saving"]


@pytest.mark.parametrize(
    ("claims", "left_us"), [(("idle_launch", "compute"), 200.0), (("compute", "idle_launch"), 600.0)]
)
def test_a_change_of_work_owns_idle_time_where_that_is_most_of_what_it_saves(
    claims: tuple[str, ...], left_us: float
) -> None:
    outcomes = (modelled("launch-bound", 600.0, "idle_launch"), modelled("loop-optimizer", 700.0, *claims))
    first, _ = (one.findings[0] for one in idle_once(outcomes, None, 2_000.0, {"idle_launch": 900.0, "compute": 900.0}))
    assert first.saving is not None
    assert first.saving.high_us == left_us


def changing(rule: str, high_us: float, risk: Risk, line: int, run_us: float | None = 1000.0) -> Outcome:
    """A rule that found something between the training steps at this line and at line 80, which changes so much."""
    finding = Finding(
        f"{rule} found something.",
        Saving(high_us / 2, high_us, "measured", "samples"),
        where=(Source("train.py", line), Source("train.py", 80)),
        fix=Fix("Change it", risk),
        claims=("forward",),
        run_us=run_us,
    )
    return Outcome(rule, "found", (finding,))


@pytest.mark.parametrize(
    ("high_us", "run_us", "first"),
    [
        (300.0, 1000.0, "small-evaluation-batch"),
        (150.0, 1000.0, "frequent-evaluation"),
        (300.0, None, "frequent-evaluation"),
    ],
    ids=["at least half as much", "less than half", "time of the steps, not between them"],
)
def test_of_two_that_save_the_same_time_what_changes_less_comes_first(
    high_us: float, run_us: float | None, first: str
) -> None:
    fewer = changing("frequent-evaluation", 400.0, "semantics", 90)
    larger = changing("small-evaluation-batch", high_us, "numerics", 60, run_us)
    ordered = least_changes_first([(one, one.findings[0]) for one in (fewer, larger)], 1000.0)
    assert ordered[0][0].rule == first
    told = named_once([fewer, larger], 1000.0)[0].findings[0].saving
    assert told is not None
    assert ("it counts once" in told.how) == (first == "small-evaluation-batch")
    assert told.high_us == 400.0
