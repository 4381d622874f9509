"""Idle time that either of two changes would save is one saving."""

from __future__ import annotations

import pytest
from benchmarks.gpu.drawn_jobs import eighth_set, tenth_set, twenty_eighth_set, twenty_third_set
from drawn_loops import report

from advisor.engine.told_once import counted_once, named_once
from advisor.model import Finding, Fix, Outcome, Report, Risk, Saving, Source, Treatment, least_changes_first


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
    assert other.counted_with == first


def test_changes_of_different_idle_time_keep_what_they_save() -> None:
    said, _ = drawn(tenth_set, "sampled")
    copies = of_rule(said, "pageable-copies")
    assert copies.saving is not None
    assert "without what" not in copies.saving.how


@pytest.mark.parametrize(
    ("name", "first", "then"), [("flan", "sync-in-loop", "launch-bound"), ("pinn", "launch-bound", "small-batch")]
)
def test_what_changes_more_and_has_nothing_left_is_told_with_what_leaves_it_nothing(
    name: str, first: str, then: str
) -> None:
    """Launches for which the device waits because reads empty its queue; a larger batch beside launches."""
    said, gain_us = drawn(twenty_third_set, name)
    owner = of_rule(said, first)
    assert owner.saving is not None
    assert gain_us <= owner.saving.high_us < 1.25 * gain_us
    assert f"`{then}` would save the same time, and changes more" in owner.saving.how
    other = next(outcome for outcome in said.outcomes if outcome.rule == then)
    assert (other.status, other.findings) == ("clear", ())
    assert f"`{first}` saves the same time and changes less" in other.reason


def test_what_a_model_of_a_place_saves_is_not_left_to_the_whole_model() -> None:
    """Larger parts of a batch, which no replay has, take launches; none is left to compilation, which is replayed."""
    said, gain_us = drawn(twenty_eighth_set, "micro")
    larger = of_rule(said, "small-batch").saving
    assert larger is not None
    assert larger.high_us == pytest.approx(gain_us, rel=0.1)
    compiled = next(outcome for outcome in said.outcomes if outcome.rule == "launch-bound")
    assert (compiled.status, compiled.findings) == ("clear", ())


def test_kernels_that_move_half_as_much_after_another_fix_save_half_as_much() -> None:
    """Elementwise ops beside products in fp32: under autocast they move half of the bytes, fused or not."""
    said, _ = drawn(twenty_third_set, "medsam")
    fused = of_rule(said, "unfused-elementwise")
    assert fused.saving is not None
    assert "without what `fp32-matmul` saves of the same time" in fused.saving.how
    # 111 ms in sequences, of which fusing saves up to 70 now.
    assert 0.5 * 70_000 <= fused.saving.high_us < 0.65 * 70_000


def test_a_change_of_one_place_comes_before_one_of_the_whole_model() -> None:
    said, _ = drawn(twenty_third_set, "assays")
    (one, _), (other, _), *_ = said.findings()
    assert (one.rule, other.rule) == ("sync-in-loop", "unfused-elementwise")


@pytest.mark.parametrize("treatment", ["compile", "autocast"])
def test_what_changes_every_layer_comes_after_what_mends_one(treatment: str) -> None:
    every = modelled(
        "fp32-matmul", 800.0, "forward", fix=Fix("All of them", "numerics", treatment=Treatment(treatment))
    )
    one = modelled("diagonal-matrices", 500.0, "forward", "backward", fix=Fix("One expression", "numerics"))
    in_turn = least_changes_first((outcome, outcome.findings[0]) for outcome in (every, one))
    assert [outcome.rule for outcome, _ in in_turn] == ["diagonal-matrices", "fp32-matmul"]


def modelled(rule: str, high_us: float, *claims: str, fix: Fix | None = None) -> Outcome:
    """A rule that found something that saves up to so much of these parts; nothing was replayed."""
    finding = Finding(f"{rule} found something.", Saving(0.0, high_us, "modelled", "high: all"), fix=fix, claims=claims)
    return Outcome(rule, "found", (finding,))


def test_without_a_replay_savings_of_a_part_are_no_more_than_it_holds() -> None:
    """One step: two changes claim the time before launches, one of them other idle time as well."""
    outcomes = (
        modelled("launch-bound", 600.0, "idle_launch"),
        modelled("sync-in-loop", 700.0, "idle_sync", "idle_launch"),
        modelled("input-bound", 300.0, "idle_input"),
    )
    parts_us = {"idle_launch": 600.0, "idle_sync": 200.0, "idle_input": 300.0}
    savings = [outcome.findings[0].saving for outcome in counted_once(outcomes, None, 2_000.0, parts_us, {})]
    highs = [saving.high_us if saving else None for saving in savings]
    # 700 of the 800 µs go to the wait, which saves most; what is left of launches is 100.
    assert highs == [100.0, 700.0, 300.0]


def test_without_a_replay_what_has_nothing_left_has_no_number() -> None:
    outcomes = (modelled("launch-bound", 600.0, "idle_launch"), modelled("sync-in-loop", 700.0, "idle_launch"))
    first, second = (one.findings[0] for one in counted_once(outcomes, None, 2_000.0, {"idle_launch": 700.0}, {}))
    assert (first.saving, second.saving and second.saving.high_us) == (None, 700.0)
    assert "`sync-in-loop` saves the same idle time" in first.facts["saving"]


_EXACT, _COMPILED = Fix("Read it later", "exact"), Fix("Compile it", "numerics", treatment=Treatment("compile"))


@pytest.mark.parametrize(
    ("least", "fix", "high_us"),
    [(0.04, _COMPILED, 100.0), (0.06, _COMPILED, None), (0.04, _EXACT, 100.0), (0.06, _EXACT, None)],
    ids=["the whole model", "the whole model, too little", "a place", "a place, too little"],
)
def test_what_is_left_is_told_only_where_its_rule_would_report_as_much(
    least: float, fix: Fix, high_us: float | None
) -> None:
    """100 µs are left to the launches, 5 % of the step."""
    outcomes = (
        modelled("launch-bound", 600.0, "idle_launch", fix=fix),
        modelled("sync-in-loop", 700.0, "idle_launch", fix=_EXACT),
    )
    counted = counted_once(outcomes, None, 2_000.0, {"idle_launch": 800.0}, {"launch-bound": least})
    savings = [one.saving.high_us for one in counted[0].findings if one.saving]
    assert savings == ([high_us] if high_us else [])


@pytest.mark.parametrize(
    ("fix", "told"),
    [(_COMPILED, False), (Fix("A larger batch", "semantics"), False), (Fix("One kernel", "numerics"), True)],
    ids=["the whole model", "another training", "another place"],
)
def test_only_what_changes_no_more_is_told_without_a_number(fix: Fix, told: bool) -> None:
    outcomes = (
        modelled("launch-bound", 600.0, "idle_launch", fix=fix),
        modelled("sync-in-loop", 700.0, "idle_launch", fix=_EXACT),
    )
    other, owner = counted_once(outcomes, None, 2_000.0, {"idle_launch": 700.0}, {})
    assert (other.status == "found") == bool(other.findings) == told
    assert owner.findings[0].saving is not None
    assert ("changes more" in owner.findings[0].saving.how) != told


def test_one_change_at_one_place_is_told_once() -> None:
    outcomes = (
        modelled("blocking-copies", 600.0, "idle_launch", fix=_EXACT),
        modelled("sync-in-loop", 700.0, "idle_launch", fix=_EXACT),
    )
    other, owner = counted_once(outcomes, None, 2_000.0, {"idle_launch": 700.0}, {})
    assert (other.status, other.findings, len(owner.findings)) == ("clear", (), 1)
    assert "tells the same change" in other.reason


def test_what_claims_no_part_loses_nothing_to_parts() -> None:
    outcomes = (modelled("host-backend", 600.0), modelled("sync-in-loop", 700.0, "idle_launch"))
    first, _ = counted_once(outcomes, None, 2_000.0, {"idle_launch": 700.0}, {})
    assert first.findings[0].saving is not None
    assert first.findings[0].saving.high_us == 600.0


@pytest.mark.parametrize(
    ("claims", "left_us"), [(("idle_launch", "compute"), 200.0), (("compute", "idle_launch"), 600.0)]
)
def test_a_change_of_work_owns_idle_time_where_that_is_most_of_what_it_saves(
    claims: tuple[str, ...], left_us: float
) -> None:
    outcomes = (modelled("launch-bound", 600.0, "idle_launch"), modelled("loop-optimizer", 700.0, *claims))
    first, _ = counted_once(outcomes, None, 2_000.0, {"idle_launch": 900.0, "compute": 900.0}, {})
    assert first.findings[0].saving is not None
    assert first.findings[0].saving.high_us == left_us


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
