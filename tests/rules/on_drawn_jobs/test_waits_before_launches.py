"""What the twenty-second set of drawn jobs showed: which of several changes comes first, and how much it may save."""

from __future__ import annotations

from functools import cache

import pytest
from benchmarks.gpu.drawn_jobs import nineteenth_set, thirtieth_set, thirty_first_set, twenty_second_set
from drawn_loops import found, report

from advisor.model import Finding, Report

_SETS = (nineteenth_set, twenty_second_set, thirtieth_set, thirty_first_set)


@cache
def drawn(name: str) -> tuple[Report, float]:
    """What is said of a job, and what its step takes longer than without the fault, µs."""
    of_set = next(one for one in _SETS if name in [job.name for job in one.JOBS])
    job = next(one for one in of_set.JOBS if one.name == name)
    slow, fast = of_set.run(job), of_set.run(job, fixed=True)
    return report(slow.trace()), slow.step_us() - fast.step_us()


def first(name: str) -> tuple[str, Finding]:
    """The finding that comes first, and its rule."""
    outcome, finding = drawn(name)[0].findings()[0]
    return outcome.rule, finding


def high_us(finding: Finding) -> float:
    """The most that it may save."""
    assert finding.saving is not None
    return finding.saving.high_us


def test_idle_time_between_reads_is_that_of_the_reads() -> None:
    """Conditions, masks and copies to the host, in turn: without one kind of them the host waits in the next."""
    said, gain_us = drawn("pillars")
    rule, finding = first("pillars")
    assert rule == "sync-in-loop"
    assert "`is_nonzero`, `nonzero` and `to` make the host wait for the GPU 220 times a step" in finding.message
    assert finding.fix is not None
    assert "conditions of the whole batch" in finding.fix.title
    assert gain_us <= high_us(finding) < 1.1 * gain_us
    # What is left of the launches is less than 5 % of the step, which a compiler is not worth.
    assert not found(said, "launch-bound")
    assert finding.saving is not None
    assert "`launch-bound` would save the same time, and changes more" in finding.saving.how


def test_values_that_a_loop_reads_are_to_be_read_at_once() -> None:
    said, gain_us = drawn("regulated")
    rule, finding = first("regulated")
    assert rule == "sync-in-loop"
    assert finding.fix is not None
    assert ".tolist()" in finding.fix.title
    assert "every N steps" not in finding.fix.title
    # The rest are the loop's own ops, and kernels that no longer follow them.
    (loop,) = found(said, "launch-bound")
    assert 0.9 * gain_us < high_us(finding) + high_us(loop) <= gain_us


def test_fewer_launches_come_before_a_larger_batch() -> None:
    said, gain_us = drawn("nowcast")
    rule, finding = first("nowcast")
    assert rule == "launch-bound"
    assert high_us(finding) >= gain_us
    assert not found(said, "small-batch")
    assert finding.saving is not None
    assert "`small-batch` would save the same time, and changes more" in finding.saving.how


def test_gathers_of_a_backward_pass_without_prefetching_are_told_by_their_ranges() -> None:
    rule, finding = first("unprefetched")
    gain_us = drawn("unprefetched")[1]
    assert rule == "late-shard-gathers"
    assert finding.fix is not None
    assert "BACKWARD_PRE" in finding.fix.title
    assert gain_us <= high_us(finding) < 1.1 * gain_us


@pytest.mark.parametrize(("name", "rule"), [("whispering", "fp32-matmul"), ("adafactored", "loop-optimizer")])
def test_high_ends_are_bounds_where_kernels_are_far_from_what_they_could_be(name: str, rule: str) -> None:
    """Products in fp32 at half of the peak; an update whose shapes were not recorded."""
    said, gain_us = drawn(name)
    (finding,) = found(said, rule)
    assert gain_us <= high_us(finding) < 1.1 * gain_us


def test_a_table_for_each_column_is_told_as_that_and_not_as_a_loop() -> None:
    """220 tables of 12.7 MB together: waits for launches, and kernels that mostly start and end."""
    said, gain_us = drawn("columns")
    rule, finding = first("columns")
    assert rule == "separate-tables"
    assert "220 embedding tables are looked up one by one" in finding.message
    assert 0.95 * gain_us < high_us(finding) < 1.05 * gain_us
    # It has the waits; what is left of them is less than a compiler is worth.
    assert not found(said, "launch-bound")


def test_a_recurrent_layer_for_each_hour_is_told_as_that_and_not_as_launches() -> None:
    """Its inputs are parts of what was there before; what follows each call goes with it, its own kernels stay."""
    said, gain_us = drawn("deepar")
    rule, finding = first("deepar")
    assert rule == "recurrent-positions"
    assert "`lstm` is called 84 times a step" in finding.message
    assert 0.9 * gain_us < high_us(finding) < 1.05 * gain_us
    assert finding.saving is not None
    # A trace does not say which tensors an op reads.
    assert finding.saving.low_us == 0
    assert not found(said, "launch-bound")


def test_priorities_are_read_a_step_later_and_not_more_seldom() -> None:
    """GradScaler's flag is read as well: nothing is left to gain from it alone."""
    _, gain_us = drawn("rainbow")
    rule, finding = first("rainbow")
    assert rule == "sync-in-loop"
    assert "`.item()` and `to`" in finding.message
    assert finding.fix is not None
    assert finding.fix.title.startswith("Copy results asynchronously")
    assert "backward pass" in finding.fix.after
    assert gain_us <= high_us(finding) < 1.05 * gain_us
