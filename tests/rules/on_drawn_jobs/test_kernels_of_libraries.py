"""What the twentieth set of drawn jobs showed of kernels: a library left out, tuned again, of an odd size."""

from __future__ import annotations

import functools

import pytest
from benchmarks.gpu.drawn_jobs import twentieth_set
from drawn_loops import found, report

from advisor.model import Report


@functools.cache
def told(name: str) -> Report:
    """What is said of a job."""
    job = next(job for job in twentieth_set.JOBS if job.name == name)
    return report(twentieth_set.run(job).trace())


def gain_us(name: str) -> float:
    """What the job takes longer than without its fault."""
    job = next(job for job in twentieth_set.JOBS if job.name == name)
    return twentieth_set.run(job).step_us() - twentieth_set.run(job, fixed=True).step_us()


def test_an_odd_size_is_told_once_of_all_three_products_of_a_head() -> None:
    (finding,) = found(told("odd_vocab"), "odd-sizes")
    assert not found(told("odd_vocab"), "slow-kernels")
    assert finding.saving is not None
    assert finding.saving.low_us > 0
    assert finding.saving.high_us == pytest.approx(gain_us("odd_vocab"), rel=0.05)
