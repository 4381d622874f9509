"""What the thirty-fifth set of drawn jobs showed: masks of packed texts, weights of four bits, evaluations, Gloo."""

from __future__ import annotations

from functools import cache

import pytest
from benchmarks.gpu.drawn_jobs import thirty_fifth_set
from drawn_loops import report

from advisor.model import Finding, Report


@cache
def told(name: str) -> tuple[Report, float]:
    """What is said of a job, and what its step takes longer than without the fault, µs."""
    job = next(one for one in thirty_fifth_set.JOBS if one.name == name)
    slow, fast = thirty_fifth_set.run(job), thirty_fifth_set.run(job, fixed=True)
    return report(slow.trace()), slow.step_us() - fast.step_us()


def first(name: str, rule: str) -> Finding:
    """The first finding, which is of this rule."""
    outcome, finding = told(name)[0].findings()[0]
    assert outcome.rule == rule
    return finding


def test_a_mask_for_each_sequence_is_told_without_a_number() -> None:
    finding = first("packmask", "dense-attention-mask")
    assert "8,192 x 8,192 for each of 2 sequences" in finding.message
    assert finding.saving is None
    assert finding.fix is not None
    assert "flex_attention" in finding.fix.title


def test_weights_of_four_bits_are_unpacked_to_a_format_that_can_be_chosen() -> None:
    finding, (_, gain_us) = first("fourbit", "fp32-matmul"), told("fourbit")
    assert finding.fix is not None
    assert "bnb_4bit_compute_dtype" in finding.fix.title
    assert finding.saving is not None
    assert finding.saving.low_us <= gain_us
    assert finding.saving.high_us == pytest.approx(gain_us, rel=0.02)


def test_an_evaluation_that_records_a_graph_needs_no_other_allocator() -> None:
    finding = first("hoarded", "allocator-churn")
    assert finding.fix is not None
    assert "torch.no_grad()" in finding.fix.title


def test_threads_of_a_backend_are_no_wait_of_the_loop() -> None:
    assert [outcome.rule for outcome, _ in told("gloo")[0].findings()] == ["host-backend"]


def test_an_optimizer_that_launches_most_is_to_launch_less() -> None:
    finding = first("muon", "launch-bound")
    assert finding.fix is not None
    assert "in the optimizer" in finding.fix.title


@pytest.mark.parametrize("name", ["flux", "vjepa", "rewarded", "clipscore", "drones"])
def test_jobs_without_a_fault_are_told_nothing(name: str) -> None:
    assert not told(name)[0].findings()
