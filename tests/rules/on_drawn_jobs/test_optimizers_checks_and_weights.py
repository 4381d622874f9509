"""What the twenty-first set of drawn jobs showed of optimizers of others, checks of gradients, and attention."""

from __future__ import annotations

from functools import cache

import pytest
from benchmarks.gpu.drawn_jobs import twenty_first_set
from drawn_loops import found, report

from advisor.model import Report


@cache
def drawn(name: str, *, fixed: bool = False) -> tuple[Report, float]:
    """What is said of a job, and what its step takes, µs."""
    job = next(one for one in twenty_first_set.JOBS if one.name == name)
    rt = twenty_first_set.run(job, fixed=fixed)
    return report(rt.trace()), rt.step_us()


def gain_us(name: str) -> float:
    """What the job takes more than without its fault."""
    return drawn(name)[1] - drawn(name, fixed=True)[1]


def test_attention_whose_weights_nobody_needs_is_told_with_its_argument() -> None:
    """Its products write and read scores, and a mean goes over them: with both, the high end holds what it gains."""
    (finding,) = found(drawn("weighed")[0], "unfused-attention")
    assert finding.fix is not None
    assert "need_weights=False" in finding.fix.title
    assert "The mean of the weights over all heads takes" in finding.message
    assert finding.saving is not None
    assert finding.saving.low_us < gain_us("weighed") <= finding.saving.high_us < 1.1 * gain_us("weighed")
    assert not found(drawn("weighed", fixed=True)[0], "unfused-attention")


def test_products_whose_kernels_load_eight_numbers_at_once_are_not_to_be_padded() -> None:
    assert not found(drawn("weighed")[0], "odd-sizes")


@pytest.mark.complete
def test_an_optimizer_of_others_is_told_what_it_can_do_and_no_less_than_that_saves() -> None:
    """Waits for launches, Python between them, and what small kernels take to start, copies included."""
    (finding,) = found(drawn("lions")[0], "loop-optimizer")
    assert "Lion updates 452 parameters one by one" in finding.message
    assert finding.fix is not None
    assert "torch._foreach_" in finding.fix.title
    assert finding.saving is not None
    assert finding.saving.low_us == 0
    assert gain_us("lions") <= finding.saving.high_us < 1.1 * gain_us("lions")
    assert not found(drawn("lions", fixed=True)[0], "loop-optimizer")


def test_what_the_loop_saves_counts_with_it_alone() -> None:
    told, _ = drawn("lions")
    assert not found(told, "launch-bound")
    (loop,) = found(told, "loop-optimizer")
    assert loop.saving is not None
    assert "`launch-bound` would save the same time, and changes more" in loop.saving.how
    (wait,) = found(told, "sync-in-loop")
    assert wait.saving is None
    assert wait.severity == "low"


def test_an_optimizer_without_the_argument_is_not_told_to_set_it() -> None:
    fixes = [finding.fix.title for _, finding in drawn("lions")[0].findings() if finding.fix]
    assert not [title for title in fixes if "fused=True" in title or "foreach=True" in title]


def test_checks_of_gradients_go_with_their_kernels_and_idle_time_counts_with_them_alone() -> None:
    told, _ = drawn("finite")
    (wait,) = found(told, "sync-in-loop")
    assert "`is_nonzero` makes the host wait for the GPU 386 times a step" in wait.message
    assert "The device spends 10" in wait.message
    assert wait.saving is not None
    assert wait.saving.low_us == 0
    assert gain_us("finite") <= wait.saving.high_us < 1.1 * gain_us("finite")
    (launches,) = found(told, "launch-bound")
    assert launches.saving is None
    assert not found(drawn("finite", fixed=True)[0], "sync-in-loop")
