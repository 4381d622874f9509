"""What the twenty-third set of drawn jobs showed: late ranks, steps that differ, masks in loops, clips and copies."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import pytest
from benchmarks.gpu.drawn_jobs import twenty_second_set, twenty_third_set
from drawn_loops import found, report, run
from host_and_device import A100, Machine

from advisor.model import Finding, Report


@cache
def drawn(name: str) -> tuple[Report, float, float]:
    """What is said of a job, what its step takes, and what it takes longer than without the fault, µs."""
    of_set = next(one for one in (twenty_second_set, twenty_third_set) if name in [job.name for job in one.JOBS])
    job = next(one for one in of_set.JOBS if one.name == name)
    slow = of_set.run(job)
    return report(slow.trace()), slow.step_us(), slow.step_us() - of_set.run(job, fixed=True).step_us()


def high_us(finding: Finding) -> float:
    """The most that it may save."""
    assert finding.saving is not None
    return finding.saving.high_us


def test_a_rank_is_awaited_though_the_window_holds_few_of_the_devices_steps() -> None:
    said, _, gain_us = drawn("scribe")
    (finding,) = found(said, "exposed-communication")
    assert "joins late" in finding.message
    assert finding.fix is not None
    assert "Find the rank" in finding.fix.title
    assert finding.saving is not None
    # No replay tells more than the wait, which is measured.
    assert finding.saving.basis == "measured"
    assert finding.saving.low_us == 0
    # The window begins with a step that waits for nobody; those like the median one, which is told, wait longer.
    assert "in the median step" in finding.message
    assert high_us(finding) == pytest.approx(gain_us, rel=0.03)


def test_gaps_and_short_kernels_between_reductions_in_line_go_with_them() -> None:
    said, _, gain_us = drawn("tutorial")
    (finding,) = found(said, "exposed-communication")
    assert finding.claims == ("exposed_communication", "idle_unknown")
    assert "Between them the GPU idles, and runs short kernels" in finding.message
    assert gain_us <= high_us(finding) < 1.1 * gain_us


@pytest.mark.parametrize("name", ["colab", "multiscale", "replay"])
def test_a_step_is_a_whole_iteration_and_the_mean_of_what_alternates(name: str) -> None:
    said, step_us, gain_us = drawn(name)
    assert said.step_us == pytest.approx(step_us, rel=0.01)
    _, first = said.findings()[0]
    assert gain_us <= 1.01 * high_us(first) < 1.2 * gain_us


def test_clips_are_to_be_in_the_format_of_five_dimensions() -> None:
    (finding,) = found(drawn("kinetics")[0], "layout-transposes")
    assert finding.fix is not None
    assert "torch.channels_last_3d" in finding.fix.after
    assert "torch.channels_last)" not in finding.fix.after


def test_a_loop_that_selects_by_masks_goes_with_its_waits() -> None:
    said, _, gain_us = drawn("assays")
    (waits,) = found(said, "sync-in-loop")
    assert "384 times a step" in waits.message
    assert high_us(waits) == pytest.approx(gain_us, rel=0.03)
    assert "compute" in waits.claims
    # What the compiler may fuse is the model's: no kernel of the loop, whose graph breaks at each wait.
    (fused,) = found(said, "unfused-elementwise")
    assert fused.facts["kernels"] < 250


def test_elementwise_ops_under_autocast_move_half_of_the_bytes() -> None:
    said, _, gain_us = drawn("medsam")
    (finding,) = found(said, "fp32-matmul")
    assert gain_us <= high_us(finding) < 1.2 * gain_us


def _layers(machine: Machine, fixed: bool, *, op: str) -> None:
    """Products in fp32, each followed by an op that moves what it made."""
    for _ in range(10):
        with machine.op("aten::mm"):
            machine.work("volta_sgemm_128x64_nn", 800)
        with machine.op(op):
            machine.work("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", 400)


V100 = {"id": 0, "name": "Tesla V100-SXM2-32GB", "computeMajor": 7, "computeMinor": 0, "numSms": 80}


@pytest.mark.parametrize(
    ("op", "device", "more_us"), [("aten::add", V100, 2_000), ("aten::pow", V100, 0), ("aten::add", A100, 0)]
)
def test_what_keeps_fp32_moves_as_many_bytes(op: str, device: dict[str, Any], more_us: float) -> None:
    """Of 4 ms beside the products half goes where an op runs in the type of its inputs: no power, and none in TF32."""

    def most_us(name: str) -> float:
        trace = run(partial(_layers, op=name)).trace(deviceProperties=[device])
        return high_us(found(report(trace), "fp32-matmul")[0])

    assert most_us(op) - most_us("x") == pytest.approx(more_us, rel=0.05, abs=20)


def _reductions(machine: Machine, fixed: bool, *, between_us: float, count: int) -> None:
    """Gradients are reduced one after another, each with a kernel behind it, on the same stream."""
    machine.layers(20, 500)
    for _ in range(count):
        sizes = {"In msg nelems": 50_000, "Out msg nelems": 50_000, "dtype": "Float", "Group size": 4}
        with machine.op("c10d::allreduce_"):
            machine.work("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 40, **{"Collective name": "allreduce", **sizes})
        with machine.op("aten::div_"):
            machine.work("void at::native::vectorized_elementwise_kernel<4, at::native::DivFunctor<float>>", between_us)


@pytest.mark.parametrize(
    ("between_us", "count", "told"), [(5, 100, True), (50, 100, False), (5, 20, False)],
    ids=["short kernels", "kernels that compute", "few reductions"],
)  # fmt: skip
def test_only_short_kernels_between_many_reductions_go_with_them(between_us: float, count: int, told: bool) -> None:
    said = report(run(partial(_reductions, between_us=between_us, count=count)).trace())
    findings = found(said, "exposed-communication")
    assert any("Between them the GPU idles" in finding.message for finding in findings) == told
    if told:
        # All but one of 99 divisions, as one bucket holds 20 MB, and gaps of 1 µs before and after them.
        assert 0.98 * 99 * between_us <= findings[0].facts["between_us"] <= 99 * (between_us + 2)
