"""Jobs as people train and report them: what once was told wrongly of them, and what must not be said."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from benchmarks.gpu.drawn_jobs import kineto
from benchmarks.gpu.drawn_jobs.kineto import Kineto
from benchmarks.gpu.drawn_jobs.layers import VECTOR
from benchmarks.gpu.drawn_jobs.tenth_set import JOBS, run
from drawn_loops import found, report

from advisor.model import Finding, Report
from advisor.reports._ranking import groups


@cache
def told(name: str) -> tuple[Report, float]:
    """What is said of some steps, and what one takes less without the fault (µs)."""
    job = next(one for one in JOBS if one.name == name)
    job = replace(job, steps=min(job.steps, 4))
    slow = run(job)
    return report(slow.trace()), slow.step_us() - run(job, fixed=True).step_us()


def drawn(step: object, steps: int = 5) -> Report:
    """What is said of another loop."""
    return report(run(replace(JOBS[0], step=step, steps=steps)).trace())  # type: ignore[arg-type]


def only(said: Report, rule: str) -> Finding:
    """The one finding of a rule."""
    (finding,) = found(said, rule)
    return finding


def title(finding: Finding) -> str:
    """What is to be done."""
    return finding.fix.title if finding.fix else ""


def share(said: Report, part: str) -> float:
    """Of the step."""
    return sum(item.share for item in said.breakdown if item.id == part)


@pytest.mark.variants(1)
@pytest.mark.parametrize("name", ["compiled", "prefetched", "full_graph"])
def test_jobs_without_a_fault_are_told_nothing(name: str) -> None:
    assert not told(name)[0].findings()


def test_calls_that_free_cost_the_idle_time_and_not_the_wait_for_the_device() -> None:
    said, gain_us = told("emptied")
    finding = only(said, "allocator-churn")
    assert finding.measured_us == pytest.approx(gain_us, rel=0.4)  # mallocs are among the calls
    assert "the GPU is idle for 1" in finding.message
    assert share(said, "idle_host") > 10 * share(said, "idle_launch")


def test_a_launch_that_takes_long_stays_a_launch() -> None:
    def step(rt: Kineto, _: bool) -> None:
        for _ in range(20):
            rt.call("LaunchKernel", 300, correlation=len(rt.rows) + 1)
            rt.op("aten::mul", run=((VECTOR.format("mul", 3), 50),), dims=([1024, 1024],), gap=2)

    said = drawn(step)
    assert share(said, "idle_launch") > 0.5
    assert share(said, "idle_host") < 0.05


def test_small_tensors_that_are_moved_each_time_belong_on_the_gpu() -> None:
    said, gain_us = told("scaled")
    finding = only(said, "sync-in-loop")
    assert title(finding).startswith("Move tensors that stay the same to the GPU before the loop")
    assert finding.saving is not None
    assert finding.saving.high_us == pytest.approx(gain_us, rel=0.05)
    assert [one.outcome.rule for one in groups(said).best] == ["sync-in-loop"]


def _layers(rt: Kineto) -> None:
    for _ in range(30):
        rt.op("aten::mul", run=((VECTOR.format("mul", 3), 900),), dims=([1024, 1024],) * 2)


def test_a_batch_that_is_moved_is_pinned() -> None:
    def step(rt: Kineto, _: bool) -> None:
        rt.moved(3 << 20, 6, [64, 3, 64, 64])
        rt.host(3_000)
        _layers(rt)

    assert title(only(drawn(step), "sync-in-loop")) == "Copy asynchronously from pinned memory"


def test_idle_time_between_waits_is_told_once_with_the_waits() -> None:
    """Python of 2 and 12 ms after waits: without them the host does it while the device works."""

    def step(rt: Kineto, _: bool) -> None:
        rt.wait()
        rt.host(2_000)
        _layers(rt)
        rt.call("EventSynchronize", 5, until=rt.free[7])
        rt.host(12_000)
        rt.call("EventSynchronize", 5, until=rt.free[7])

    said = drawn(step)
    waits = only(said, "sync-in-loop")
    assert "what it does next leaves the GPU idle for 13" in waits.message
    assert waits.saving is not None
    assert waits.saving.high_us == pytest.approx(12_000, rel=0.1)
    assert not found(said, "idle-gpu")


def test_kernels_of_several_sizes_in_one_op_are_not_equal_calls() -> None:
    said, gain_us = told("images")
    assert not found(said, "uneven-kernels")
    finding = only(said, "layout-transposes")
    assert finding.saving is not None
    assert finding.saving.high_us == pytest.approx(gain_us, rel=0.03)


@pytest.mark.complete
def test_an_optimizer_of_another_class_has_no_fused_argument() -> None:
    finding = only(told("cautious")[0], "loop-optimizer")
    assert title(finding).startswith("Update all parameters at once")
    assert "of the host's time" not in finding.message  # it waits for room in the device's queue


@pytest.mark.parametrize(("name", "fix"), [("AdamW", "Set `fused=True`"), ("Lion", "Update all parameters at once")])
def test_a_loop_of_pytorchs_own_update_has(name: str, fix: str) -> None:
    """Also where one tensor's norm is computed in it."""

    def step(rt: Kineto, _: bool) -> None:
        _layers(rt)
        rt.wait()
        with rt.span(f"Optimizer.step#{name}.step", "user_annotation", us=100):
            rt.op("aten::sum", run=((VECTOR.format("sum", 2), 3),), dims=([512, 512],))
            for _ in range(60):
                for op in ("mul_", "lerp_", "mul_", "addcmul_", "sqrt", "div", "add_", "addcdiv_"):
                    rt.op(f"aten::{op}", run=((VECTOR.format(op, 3), 3),), dims=([512, 512],) * 2)

    assert title(only(drawn(step), "loop-optimizer")).startswith(fix)


def test_what_waits_of_experts_cost_beyond_the_idle_time_after_them() -> None:
    said, gain_us = told("looped_experts")
    finding = only(said, "sync-in-loop")
    assert finding.saving is not None
    assert 0.75 * gain_us < finding.saving.high_us < 1.1 * gain_us


def test_gradients_that_are_reduced_by_hand_are_left_to_ddp() -> None:
    said, gain_us = told("by_hand")
    finding = only(said, "exposed-communication")
    assert "DistributedDataParallel" in title(finding)
    assert finding.saving is not None
    assert finding.saving.high_us == pytest.approx(gain_us, rel=0.06)
    assert not [outcome for outcome in said.outcomes if outcome.status == "error"]


def test_fp16_and_nothing_else_on_a_t4() -> None:
    said, gain_us = told("single")
    finding = only(said, "fp32-matmul")
    assert "fp16" in title(finding)
    assert finding.saving is not None
    assert finding.saving.low_us < gain_us <= 1.02 * finding.saving.high_us
    assert kineto.T4["computeMajor"] == 7
