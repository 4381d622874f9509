"""What the twenty-first set of drawn jobs showed: a slower rank, a loop of launches, autocast around the loss alone."""

from __future__ import annotations

from functools import partial

import pytest
from benchmarks.gpu.drawn_jobs import twenty_first_set
from drawn_loops import found, report, run
from host_and_device import Machine

from advisor.model import Report


def told(name: str) -> Report:
    """What is said of a job."""
    job = next(job for job in twenty_first_set.JOBS if job.name == name)
    return report(twenty_first_set.run(job).trace())


def gain_us(name: str) -> float:
    """What the job takes beyond one without its fault."""
    job = next(job for job in twenty_first_set.JOBS if job.name == name)
    return twenty_first_set.run(job).step_us() - twenty_first_set.run(job, fixed=True).step_us()


def test_buckets_that_wait_for_a_slower_rank_are_told_by_a_larger_one() -> None:
    (finding,) = found(told("capped"), "exposed-communication")
    assert "joins late" in finding.message
    assert "9.1 times their size" in finding.message
    assert finding.fix is not None
    assert "Find the rank" in finding.fix.title
    assert finding.saving is not None
    assert finding.saving.low_us == 0
    assert finding.saving.high_us == pytest.approx(gain_us("capped"), rel=0.02)


def _reduced(machine: Machine, fixed: bool, *, us: tuple[float, ...], kind: str = "allreduce") -> None:
    """Gradients are reduced in buckets of which each is twice the one before."""
    machine.layers(20, 200)
    for number, took in enumerate(us):
        sizes = {"In msg nelems": 3_000_000 << number, "Out msg nelems": 3_000_000 << number, "dtype": "Float"}
        with machine.op(f"c10d::{kind}_"):
            name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL" if kind == "allreduce" else "ncclDevKernel_SendRecv"
            machine.work(name, took, **{"Collective name": kind, "Group size": 8, **sizes})


@pytest.mark.parametrize(
    ("us", "kind", "late"),
    [
        ((3_000, 4_000, 1_000), "allreduce", True),
        # Each takes as long as its bytes at one rate, or not much longer: the network.
        ((500, 1_000, 2_000), "allreduce", False),
        ((1_900, 1_900, 1_000), "allreduce", False),
        # In an exchange the one with fewer elements here may have more of them on another rank.
        ((3_000, 4_000, 1_000), "alltoall", False),
    ],
)
def test_more_bytes_never_take_less(us: tuple[float, ...], kind: str, late: bool) -> None:
    facts = {"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8}}
    said = found(report(run(partial(_reduced, us=us, kind=kind)).trace(**facts)), "exposed-communication")
    assert said
    assert any("joins late" in finding.message for finding in said) == late


def test_launches_come_before_a_larger_batch_of_many_samples() -> None:
    said = told("odes")
    first, finding = said.findings()[0]
    assert first.rule == "launch-bound"
    assert finding.saving is not None
    # One CUDA graph of it all: neither the ops nor the Python between them are left.
    assert gain_us("odes") <= finding.saving.high_us <= finding.facts["idle_launch_us"] * 1.01
    (batch,) = found(said, "small-batch")
    assert batch.saving is None
    assert "may need as many updates" in batch.message


def test_autocast_around_the_loss_alone_is_to_be_around_the_model() -> None:
    (finding,) = found(told("misplaced"), "fp32-matmul")
    assert "autocast converts the weights of 2 layers a step alone" in finding.message
    assert finding.fix is not None
    assert "Call the whole model under autocast" in finding.fix.title
    assert "set_float32_matmul_precision" in finding.fix.after
    assert finding.saving is not None
    # What the products gain; what is less to move for the ops between them no rule computes.
    assert 0.7 * gain_us("misplaced") < finding.saving.high_us < gain_us("misplaced")


def test_attention_whose_scores_of_positions_are_gathered_keeps_the_gathers() -> None:
    said = told("swept")
    assert {outcome.rule for outcome, _ in said.findings()[:2]} == {"allocator-churn", "unfused-attention"}
    (finding,) = found(said, "unfused-attention")
    assert finding.saving is not None
    assert finding.saving.low_us == 0
    assert finding.fix is not None
    assert "attn_mask=bias" in finding.fix.after
