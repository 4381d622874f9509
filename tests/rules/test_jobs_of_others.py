"""Jobs drawn by who had read no rule: what once was told wrongly of them."""

from __future__ import annotations

from functools import cache

from benchmarks.drawn_jobs.eleventh_set import JOBS, run
from drawn_loops import found, report

from advisor.model import Report


@cache
def told(name: str) -> Report:
    """What is said of a job."""
    job = next(one for one in JOBS if one.name == name)
    return report(run(job).trace())


def test_copies_of_one_checkpoint_are_not_copies_of_each_step() -> None:
    said = told("saved")
    assert not found(said, "blocking-copies")
    (idle,) = found(said, "idle-gpu")
    assert "in one of the 6 recorded steps" in idle.message
    assert idle.saving is None


def test_plans_that_are_timed_are_no_products_of_the_model() -> None:
    said = told("searched")
    assert not found(said, "fp32-matmul")
    assert not found(said, "slow-kernels")
    (finding,) = found(said, "repeated-tuning")
    assert finding.saving is not None
    assert finding.saving.low_us < 3_691 / 3_942 * (said.step_us or 0) < 1.01 * finding.saving.high_us
