"""The joint saving: never the sum of overlapping fixes, never more than the step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.engine.joint import joint
from advisor.model import Basis, Finding, Saving

PARTS = {"idle_input": 400.0, "idle_sync": 100.0, "compute": 500.0}


def finding(
    low: float, high: float, *claims: str, rule: str = "sync-in-loop", basis: Basis = "modelled"
) -> tuple[str, Finding]:
    return rule, Finding("…", Saving(low, high, basis, "…"), claims=claims)


def test_nothing_to_join() -> None:
    assert joint([], PARTS, 1000.0) is None
    assert joint([("sync-in-loop", Finding("no number"))], PARTS, 1000.0) is None


def test_one_fix_is_itself() -> None:
    both = joint([finding(100, 200, "idle_input")], PARTS, 1000.0)
    assert (both.low_us, both.high_us, both.step_us_after) == (100, 200, 850)


def test_fixes_of_different_parts_add_at_the_upper_bound_only() -> None:
    both = joint([finding(100, 200, "idle_input"), finding(50, 80, "idle_sync")], PARTS, 1000.0)
    assert (both.low_us, both.high_us) == (100, 280)


def test_fixes_of_two_rules_shrink_the_same_time_one_after_the_other() -> None:
    # 500 µs of compute: one fix halves them, the other takes a fifth of what is left: 500 - 500 * 0.5 * 0.8 = 300.
    both = joint([finding(0, 250, "compute"), finding(0, 100, "compute", rule="fp32-matmul")], PARTS, 1000.0)
    assert both.high_us == pytest.approx(300)


def test_all_that_was_replayed_at_once_gives_no_less_than_the_best_of_it() -> None:
    """One finding counts pauses that its edits leave in the replay."""
    replayed = Saving(200, 220, "replayed", "…")
    both = joint([finding(0, 250, "compute", basis="replayed")], PARTS, 1000.0, replayed)
    assert (both.low_us, both.high_us, both.basis) == (0, 250, "replayed")


def test_two_places_of_one_part_never_give_more_than_it_holds() -> None:
    both = joint([finding(60, 90, "idle_sync"), finding(70, 95, "idle_sync")], PARTS, 1000.0)
    assert (both.low_us, both.high_us) == (70, 100)


def test_a_fix_without_claims_competes_with_everything() -> None:
    both = joint([finding(10, 300), finding(50, 100, "idle_sync", rule="small-batch")], PARTS, 1000.0)
    assert both.high_us == pytest.approx(1000 - 1000 * 0.7 * 0.9)


savings = st.tuples(st.floats(0, 500), st.floats(0, 500)).map(sorted)
claims = st.sets(st.sampled_from(sorted(PARTS))).map(tuple)
rules = st.sampled_from(["sync-in-loop", "small-batch", "fp32-matmul"])


@given(st.lists(st.tuples(savings, claims, rules), min_size=1, max_size=6))
def test_the_range_is_bounded_whatever_the_fixes(drawn: list[tuple[list[float], tuple[str, ...], str]]) -> None:
    findings = [finding(low, high, *names, rule=rule) for (low, high), names, rule in drawn]
    both = joint(findings, PARTS, 1000.0)
    assert 0 <= both.low_us <= both.high_us <= 1000.0
    assert 0 <= both.step_us_after <= 1000.0
    assert both.high_us <= sum(high for (_, high), *_ in drawn) + 1e-6
    assert both.high_us >= min(1000.0, max(high for (_, high), *_ in drawn)) - 1e-6
