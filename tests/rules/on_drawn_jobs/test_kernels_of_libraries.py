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


def test_convolutions_without_cudnn_are_told_with_the_switch() -> None:
    ((outcome, finding),) = told("uncudnn").findings()
    assert outcome.rule == "unused-cudnn"
    assert "106 convolutions a step (gradients included) without cuDNN" in finding.message
    assert finding.fix is not None
    assert finding.fix.title == "Leave `torch.backends.cudnn.enabled` on"
    assert finding.saving is not None
    assert finding.saving.low_us < gain_us("uncudnn") < finding.saving.high_us


def test_kernels_that_triton_tunes_again_are_named_with_their_steps() -> None:
    ((outcome, finding),) = told("autotuned").findings()
    assert outcome.rule == "repeated-tuning"
    assert "`causal_conv1d_bwd_kernel` in 2 of 5 steps" in finding.message
    assert finding.saving is not None
    # Steps are counted from one start to the next, which leaves out the short first one.
    assert finding.saving.high_us == pytest.approx(gain_us("autotuned"), rel=0.15)


@pytest.mark.variants(1)
@pytest.mark.parametrize("name", ["odd_vocab", "uncudnn", "autotuned"])
def test_the_jobs_without_their_faults_are_told_nothing_of_them(name: str) -> None:
    job = next(job for job in twentieth_set.JOBS if job.name == name)
    said = report(twentieth_set.run(job, fixed=True).trace())
    for rule in ("odd-sizes", "slow-kernels", "unused-cudnn", "repeated-tuning"):
        assert not found(said, rule), rule


def test_little_python_of_a_step_that_waits_for_launches_is_told_with_these() -> None:
    ((outcome, finding),) = told("skipped").findings()
    assert outcome.rule == "launch-bound"
    assert finding.saving is not None
    assert 0.7 * gain_us("skipped") < finding.saving.high_us < gain_us("skipped")
    assert finding.fix is not None
    assert "cudagraph_or_error" in finding.fix.after
