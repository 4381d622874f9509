"""What the sixteenth set of drawn jobs showed: ranks that come late, gathers without gradients, needed digits."""

from __future__ import annotations

import pytest
from benchmarks.gpu.drawn_jobs import sixteenth_set
from drawn_loops import found, report

from advisor.model import Report


def told(name: str) -> Report:
    """What is said of a job."""
    job = next(job for job in sixteenth_set.JOBS if job.name == name)
    return report(sixteenth_set.run(job).trace())


def test_reductions_that_wait_for_another_rank_are_not_to_be_made_smaller() -> None:
    (finding,) = found(told("unbalanced"), "exposed-communication")
    assert finding.saving is not None
    assert finding.saving.low_us == 0
    assert finding.saving.high_us == pytest.approx(finding.facts["exposed_us"], rel=0.02)
    assert finding.fix is not None
    assert "batches are unequal" in finding.message
    assert "Group samples by length" in finding.fix.title


def test_parameters_that_are_gathered_for_each_token_are_to_be_gathered_once() -> None:
    (finding,) = found(told("regathered"), "exposed-communication")
    assert finding.fix is not None
    assert "Gather the parameters once" in finding.fix.title


def test_the_search_of_ddp_is_to_be_switched_off_not_moved() -> None:
    finding = found(told("unused"), "idle-gpu")[0]
    assert finding.fix is not None
    assert "find_unused_parameters" in finding.fix.title


def test_interpolation_under_deterministic_algorithms_sorts() -> None:
    (finding,) = found(told("deterministic"), "sorted-gradients")
    assert "`F.interpolate`" in finding.message


@pytest.mark.variants(1)
@pytest.mark.parametrize("name", ["limited", "staged", "lagged", "grouped"])
def test_jobs_without_a_fault_are_told_nothing(name: str) -> None:
    assert not told(name).findings()


def test_curvature_needs_its_digits() -> None:
    assert not found(told("converged"), "double-precision")


def test_a_loop_over_points_is_named_and_no_larger_batch_takes_its_place() -> None:
    """Without stacks it is not known what the loop goes through, so nobody can tell what more samples would cost."""
    told_of = told("pointed")
    finding = found(told_of, "launch-bound")[0]
    assert "in loops, the longest of 256 times `copy_`" in finding.message
    assert finding.fix is not None
    assert "Compute the 256 iterations" in finding.fix.title
    assert not found(told_of, "small-batch")
