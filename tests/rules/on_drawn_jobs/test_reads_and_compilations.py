"""What the eighteenth set of drawn jobs showed: compilations that idle the device, reads that hide one another."""

from __future__ import annotations

import pytest
from benchmarks.gpu.drawn_jobs import eighteenth_set
from drawn_loops import found, report

from advisor.model import Report


def told(name: str) -> Report:
    """What is said of a job."""
    job = next(job for job in eighteenth_set.JOBS if job.name == name)
    return report(eighteenth_set.run(job).trace())


def gain_us(name: str) -> float:
    """What the job takes longer than without its fault."""
    job = next(job for job in eighteenth_set.JOBS if job.name == name)
    return eighteenth_set.run(job).step_us() - eighteenth_set.run(job, fixed=True).step_us()


def test_an_update_that_compiles_for_each_rate_idles_the_device() -> None:
    said = told("rated")
    (finding,) = found(said, "recompiles")
    assert finding.fix is not None
    assert finding.fix.title == "Make the learning rate a tensor"
    assert finding.measured_us == pytest.approx(gain_us("rated"), rel=0.05)
    assert not found(said, "idle-gpu")


def test_sizes_and_values_that_are_read_in_turn_are_one_wait() -> None:
    (finding,) = found(told("unpadded"), "sync-in-loop")
    assert "`nonzero` and `.item()` make the host wait for the GPU 48 times a step" in finding.message
    assert finding.saving is not None
    assert finding.saving.high_us == pytest.approx(gain_us("unpadded"), rel=0.15)
    assert finding.fix is not None
    assert finding.fix.title.startswith("Call `nonzero` fewer times")


@pytest.mark.variants(1)
@pytest.mark.parametrize("name", ["deepened", "spilled", "hotrows", "bucketed"])
def test_jobs_without_a_fault_are_told_nothing(name: str) -> None:
    assert not told(name).findings()
