"""What the twentieth set showed of ranks that wait, gradients that come late, and values that are checked."""

from __future__ import annotations

import pytest
from benchmarks.gpu.drawn_jobs import twentieth_set
from drawn_loops import found, report

from advisor.model import Report


def told(name: str, *, fixed: bool = False) -> Report:
    """What is said of a job."""
    job = next(job for job in twentieth_set.JOBS if job.name == name)
    return report(twentieth_set.run(job, fixed=fixed).trace())


def test_a_rank_that_waits_for_the_batches_of_rank_0_reads_its_own_instead() -> None:
    """The first step of the window waits three times as long, as nothing else runs: half of the others tell."""
    finding = found(told("relayed"), "exposed-communication")[0]
    assert "the GPU waits for the rank that sends" in finding.message
    assert finding.saving is not None
    assert finding.saving.low_us == 0
    assert finding.saving.high_us == pytest.approx(129e3, rel=0.1)
    assert finding.fix is not None
    assert "dispatch_batches=False" in finding.fix.title


def test_gradients_of_one_compiled_graph_are_to_be_reduced_before_it_ends() -> None:
    (finding,) = found(told("undivided"), "exposed-communication")
    assert "The compiled backward pass is one graph" in finding.message
    assert finding.saving is not None
    assert finding.saving.low_us == 0
    assert finding.saving.high_us == pytest.approx(103.5e3, rel=0.1)
    assert finding.fix is not None
    assert "optimize_ddp" in finding.fix.title


def test_distributions_need_not_check_their_arguments_in_each_step() -> None:
    finding = found(told("ladder"), "sync-in-loop")[0]
    assert "128 times a step" in finding.message
    assert "arguments of distributions" in finding.message
    assert finding.saving is not None
    assert finding.saving.high_us == pytest.approx(15.1e3, rel=0.2)
    assert finding.fix is not None
    assert "validate_args=False" in finding.fix.title
    assert "every N steps" not in finding.fix.title


@pytest.mark.variants(1)
@pytest.mark.parametrize("name", ["relayed", "undivided", "ladder"])
def test_of_these_jobs_without_their_fault_nothing_is_said(name: str) -> None:
    fixed = told(name, fixed=True)
    assert not found(fixed, "exposed-communication")
    assert not found(fixed, "sync-in-loop")
