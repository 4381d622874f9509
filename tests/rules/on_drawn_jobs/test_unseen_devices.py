"""Advice on traces of a made-up host and device, whose truth is what the same loop takes with the change."""

from __future__ import annotations

import json
from functools import partial

import pytest
from drawn_loops import Loop, found, report, run
from host_and_device import Machine

from advisor.model import Report


def read_and_compute(machine: Machine, fixed: bool, *, reads: int = 1, python_us: float = 3_000) -> None:
    """The host waits for a value, and has work of its own before it launches again."""
    machine.layers(20, 200)
    for _ in range(reads):
        if not fixed:
            machine.read()
        machine.python(python_us)
    machine.layers(20, 200)


def norms_one_by_one(machine: Machine, fixed: bool) -> None:
    """A small kernel and a read for each parameter: no wait is long, and none can be launched ahead."""
    machine.layers(20, 60)
    for _ in range(60):
        with machine.op("aten::linalg_vector_norm"):
            machine.work("reduce_kernel", 6)
        if not fixed:
            machine.read()


@pytest.mark.parametrize(
    "loop", [read_and_compute, partial(read_and_compute, reads=3, python_us=900), norms_one_by_one]
)
def test_what_a_wait_costs_is_idle_time_after_other_work(loop: Loop) -> None:
    slow, fast = run(loop), run(loop, fixed=True)
    gain_us = slow.step_us() - fast.step_us()
    assert gain_us > 0.05 * slow.step_us()
    told = report(slow.trace())
    finding = next(iter(found(told, "sync-in-loop")))
    assert finding.saving is not None
    assert finding.saving.high_us == pytest.approx(gain_us, rel=0.15)
    assert told.step_us == pytest.approx(slow.step_us(), rel=0.02)


def test_a_read_that_a_full_queue_hides_is_no_finding() -> None:
    def loop(machine: Machine, fixed: bool) -> None:
        machine.layers(40, 300)
        if not fixed:
            machine.read()

    slow, fast = run(loop), run(loop, fixed=True)
    assert slow.step_us() - fast.step_us() < 0.01 * slow.step_us()
    assert not found(report(slow.trace()), "sync-in-loop")


def test_memory_of_a_full_device_is_the_allocators() -> None:
    def loop(machine: Machine, fixed: bool) -> None:
        machine.layers(20, 100)
        if not fixed:
            with machine.op("aten::empty"):
                machine.call("cudaMalloc", 40)
                machine.call("cudaDeviceSynchronize", 5, waits=True)
                machine.call("cudaFree", 2_500, waits=True)
                machine.call("cudaMalloc", 1_200)
        machine.layers(20, 100)

    slow, fast = run(loop), run(loop, fixed=True)
    told = report(slow.trace())
    (finding,) = found(told, "allocator-churn")
    assert finding.saving is not None
    assert finding.saving.high_us == pytest.approx(slow.step_us() - fast.step_us(), rel=0.15)
    assert (finding.measured_us or 0) > 0
    assert not found(told, "idle-gpu")
    assert not found(told, "sync-in-loop")


def _exchanging(machine: Machine, fixed: bool) -> None:
    """Gradients go over the host: a thread of gloo's copies, sums and sends them."""
    machine.layers(20, 200)
    if not fixed:
        machine.call("cudaStreamSynchronize", 5, waits=True)
        machine.rows.append(
            {"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", "pid": 1, "tid": 9, "args": {}}
            | {"ts": machine.now, "dur": 9_000}
        )
        machine.call("cudaStreamSynchronize", 9_000)
    with machine.op("aten::_fused_adamw_"):
        machine.work("multi_tensor_apply_kernel", 400)


def test_exchange_over_the_host_is_no_fixed_cost_and_nobodys_python() -> None:
    slow, fast = run(_exchanging), run(_exchanging, fixed=True)
    told = report(slow.trace(distributedInfo={"backend": "gloo", "rank": 0, "world_size": 2}))
    (finding,) = found(told, "host-backend")
    assert finding.saving is not None
    assert finding.saving.high_us == pytest.approx(slow.step_us() - fast.step_us(), rel=0.1)
    assert not found(told, "idle-gpu")
    assert not found(told, "small-batch")
    assert not found(told, "sync-in-loop")


@pytest.mark.parametrize("ahead", [False, True])
def test_one_far_longer_step_is_in_no_share_of_the_others(ahead: bool) -> None:
    """An evaluation that copies, reads and computes, or a checkpoint."""
    machine, ordinary = Machine(), Machine()
    for made in (machine, ordinary):
        for number in range(8):
            with made.step():
                made.layers(30, 300)
                if number == 4 and made is machine:
                    made.read()
                    made.python(300_000)
                    made.layers(30 if ahead else 1, 2_000)
    told, usual = report(machine.trace()), report(ordinary.trace())
    assert not [finding for _, finding in told.findings() if finding.saving and finding.saving.high_us > 0]
    assert told.step_us == pytest.approx(usual.step_us, rel=0.02)
    shares = [{item.id: item.share for item in one.breakdown} for one in (told, usual)]
    assert shares[0]["compute"] == pytest.approx(shares[1]["compute"], abs=0.02)
    (note,) = [item for item in told.health if item.id == "stalled-steps"]
    assert "left out" in note.message


def test_steps_that_are_long_again_and_again_stay() -> None:
    machine = Machine()
    for number in range(9):
        with machine.step():
            machine.layers(30, 300)
            machine.python(100_000 if number % 3 == 1 else 0)
            machine.read()
    assert report(machine.trace()).steps.count == 9


def _paced(rows: list[dict[str, object]]) -> Report:
    return report(json.dumps({"traceEvents": rows}).encode())


def test_rows_of_steps_may_overlap_by_what_was_rounded() -> None:
    machine = run(lambda made, _: made.layers(30, 300), steps=6)
    rows = [dict(row) for row in sorted(machine.rows, key=lambda row: float(row["ts"]))]
    for row in rows:
        if str(row["name"]).startswith("ProfilerStep#"):
            row["dur"] = float(row["dur"]) + 0.001
    told = _paced(rows)
    assert told.steps.count == 6
    assert told.step_us == pytest.approx(machine.step_us(), rel=0.02)


def test_without_correlations_one_queue_is_in_the_order_of_its_calls() -> None:
    machine = run(lambda made, _: made.layers(30, 300), steps=5)
    step_us = machine.step_us()
    for row in machine.rows:
        if row["cat"] == "kernel":
            row["args"]["correlation"] += 1_000_000
    told = report(machine.trace())
    assert told.step_us == pytest.approx(step_us, rel=0.02)
    assert any(item.id == "host-ahead" for item in told.health)


def test_a_host_that_waits_in_each_step_is_not_ahead() -> None:
    machine = run(partial(read_and_compute, python_us=100))
    told = report(machine.trace())
    assert told.step_us == pytest.approx(machine.step_us(), rel=0.02)
    assert not any(item.id == "host-ahead" for item in told.health)


def test_steps_of_a_device_alone_are_what_its_work_repeats() -> None:
    machine = Machine()
    for _ in range(6):
        machine.work("Memcpy HtoD (Pinned -> Device)", 20, "gpu_memcpy", "cudaMemcpyAsync", bytes=4096)
        for name in ("gemm_a", "gelu", "gemm_b", "norm", "adam"):
            machine.work(name, 200)
        machine.python(3_000)
    machine.rows = [row for row in machine.rows if row["cat"] in ("kernel", "gpu_memcpy")]
    starts = [row["ts"] for row in machine.rows if row["cat"] == "gpu_memcpy"]
    told = report(machine.trace())
    assert (told.steps.source, told.steps.count) == ("repetition", 6)
    assert told.step_us == pytest.approx((starts[-1] - starts[0]) / 5, rel=0.02)


def _fetching(machine: Machine, fixed: bool) -> None:
    """A batch takes three times as long as the step that uses it."""
    start = machine.now
    machine.python(100 if fixed else 30_000)
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    row = {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "args": {}}
    machine.rows.append(row | {"ts": start, "dur": machine.now - start})
    machine.layers(20, 200)


def test_slow_batches_are_worth_what_the_workers_save_that_the_fix_names() -> None:
    """One worker, which is all that is certain where cores are not known, would still be waited for."""
    slow, fast = run(_fetching), run(_fetching, fixed=True)
    (finding,) = found(report(slow.trace()), "input-bound")
    assert finding.saving is not None
    assert finding.fix is not None
    assert "num_workers=5" in finding.fix.title
    gain_us = slow.step_us() - fast.step_us()
    assert finding.saving.high_us == pytest.approx(gain_us, rel=0.1)
    assert 0 < finding.saving.low_us < 0.6 * gain_us
