"""What a fourth set of drawn traces showed: the same loop without the fault is the truth."""

from __future__ import annotations

from functools import partial

import pytest
from drawn_loops import found, report, run
from host_and_device import Machine


def _row(machine: Machine, name: str, us: float) -> None:
    """An annotation of the loop's thread."""
    row = {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "args": {}}
    machine.rows.append(row | {"ts": machine.now, "dur": us})
    machine.python(us)


def _update(machine: Machine, fixed: bool, *, name: str = "mul_", tensors: int = 400) -> None:
    """A list of small tensors is updated, one kernel of its own for each, or one for all."""
    machine.layers(20, 400)
    types = {"Input type": ["float", "float"]}
    for _ in range(1 if fixed else tensors):
        with machine.op(f"aten::{'_foreach_' if fixed else ''}{name}", **{"Input Dims": [[4096], []], **types}):
            machine.work("vectorized_elementwise_kernel", 20 if fixed else 4)


def test_a_loop_over_weights_costs_a_busy_device_its_small_kernels() -> None:
    slow, fast = run(_update), run(_update, fixed=True)
    gain_us = slow.step_us() - fast.step_us()
    assert gain_us > 0.05 * slow.step_us()
    (finding,) = found(report(slow.trace()), "tensor-loop")
    assert finding.saving is not None
    assert 0.6 * gain_us < finding.saving.high_us <= 1.1 * gain_us
    assert not found(report(slow.trace()), "unfused-elementwise")


def test_layers_of_a_model_are_no_loop_over_weights() -> None:
    def loop(machine: Machine, fixed: bool) -> None:
        for _ in range(60):
            with machine.op("aten::addmm"):
                machine.work("ampere_bf16_s16816gemm_bf16_128x128_tn", 100)
            with machine.op("aten::mul", **{"Input Dims": [[4096], []], "Input type": ["float", "float"]}):
                machine.work("vectorized_elementwise_kernel", 4)

    assert not found(report(run(loop).trace()), "tensor-loop")


def _adam(machine: Machine, fixed: bool) -> None:
    machine.layers(20, 400)
    names = ("mul_", "lerp_", "mul_", "addcmul_", "sqrt", "div_", "add_", "addcdiv_")
    start = machine.now
    shapes = {"Input Dims": [[4096], [4096]], "Input type": ["float", "float"]}
    for name in ["_fused_adamw_"] if fixed else names * 100:
        with machine.op(f"aten::{name}", **shapes):
            machine.work("vectorized_elementwise_kernel", 40 if fixed else 4)
    machine.rows.append(
        {"ph": "X", "cat": "user_annotation", "name": "Optimizer.step#AdamW.step", "pid": 1, "tid": 1, "args": {}}
        | {"ts": start, "dur": machine.now - start}
    )


def test_an_optimizers_loop_that_the_queue_hides_is_found() -> None:
    slow, fast = run(_adam), run(_adam, fixed=True)
    gain_us = slow.step_us() - fast.step_us()
    (finding,) = found(report(slow.trace()), "loop-optimizer")
    assert finding.saving is not None
    assert 0.6 * gain_us < finding.saving.high_us <= 1.1 * gain_us


def _copied(machine: Machine, fixed: bool, *, hidden: bool = False) -> None:
    with machine.op("aten::to"):
        machine.work(
            "Memcpy HtoD (Pinned -> Device)",
            1 if fixed else 1_500,
            "gpu_memcpy",
            "cudaMemcpyAsync",
            bytes=1 << (10 if fixed else 25),
        )
    machine.layers(20, 400)


def test_a_copy_in_line_with_the_kernels_is_what_copying_ahead_gives_back() -> None:
    slow, fast = run(_copied, steps=8), run(_copied, fixed=True, steps=8)
    (finding,) = found(report(slow.trace()), "blocking-copies")
    assert "on the stream of the computation" in finding.message
    assert finding.saving is not None
    assert finding.saving.high_us == pytest.approx(slow.step_us() - fast.step_us(), rel=0.1)
    assert not found(report(fast.trace()), "blocking-copies")


def _logged(machine: Machine, fixed: bool) -> None:
    """All gradients go to the host."""
    machine.layers(20, 200)
    for _ in range(0 if fixed else 20):
        with machine.op("aten::to"), machine.op("aten::copy_"):
            done = machine.work("Memcpy DtoH (Device -> Pageable)", 500, "gpu_memcpy", "cudaMemcpyAsync", bytes=2 << 20)
            machine.rows[-1]["dur"] += done - machine.now
            machine.now = done
            machine.call("cudaStreamSynchronize", 2)
    machine.layers(2, 200)


def test_copies_that_stay_on_the_device_are_gone() -> None:
    slow, fast = run(_logged), run(_logged, fixed=True)
    (finding,) = found(report(slow.trace()), "blocking-copies")
    assert finding.saving is not None
    assert finding.saving.high_us == pytest.approx(slow.step_us() - fast.step_us(), rel=0.15)


def test_batches_that_are_late_again_and_again_are_no_start_of_an_epoch() -> None:
    machine = Machine()
    for number in range(13):
        with machine.step():
            due = 100_000 * (number // 4)
            name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
            _row(machine, name, max(100, due - machine.now))
            machine.layers(20, 200)
            machine.read()
    (finding,) = found(report(machine.trace()), "input-bound")
    assert "start of an epoch" not in finding.message
    assert finding.fix is not None
    assert "num_workers" in finding.fix.title


def test_a_wait_before_the_only_step_is_none_of_each_step() -> None:
    machine = Machine()
    with machine.step():
        _row(machine, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 8_000)
        machine.layers(60, 200)
    told = report(machine.trace())
    work = [row for row in machine.rows if row["cat"] == "kernel"]
    assert told.step_us == pytest.approx(work[-1]["ts"] + work[-1]["dur"] - work[0]["ts"], rel=0.02)
    assert sum(item.us for item in told.breakdown) == pytest.approx(told.step_us, rel=0.01)
    assert not found(told, "input-bound")


def _reduced(machine: Machine, fixed: bool) -> None:
    """Gradients are reduced in eight buckets of one size; the first waits for a late rank."""
    machine.layers(20, 200)
    sizes = {"In msg nelems": 6_000_000, "Out msg nelems": 6_000_000, "dtype": "Float", "Group size": 8}
    for number in range(8):
        with machine.op("c10d::allreduce_"):
            us = 400 if number or fixed else 9_000
            machine.work("ncclDevKernel_AllReduce_Sum_f32_RING_LL", us, **{"Collective name": "allreduce", **sizes})


@pytest.mark.parametrize("fixed", [False, True])
def test_waiting_for_a_late_rank_is_no_sending(fixed: bool) -> None:
    slow, fast = run(_reduced), run(_reduced, fixed=True)
    told = report((fast if fixed else slow).trace(distributedInfo={"backend": "nccl", "rank": 0, "world_size": 8}))
    (finding,) = found(told, "exposed-communication")
    late_us = 0 if fixed else slow.step_us() - fast.step_us()
    assert finding.facts["late_us"] == pytest.approx(late_us, rel=0.1)
    assert ("joins late" in finding.message) is not fixed
    assert finding.saving is not None
    assert finding.saving.low_us == 0
    # Without waiting, sending is half of what it is, or hidden; with it, the rank that is late costs what it does.
    most_us = 8 * 400 if fixed else late_us
    assert finding.saving.high_us == pytest.approx(most_us, rel=0.05)


@pytest.mark.parametrize("skew_us", [0, 40])
def test_work_before_its_launch_shows_two_clocks(skew_us: float) -> None:
    machine = run(partial(_copied, hidden=True))
    for row in machine.rows:
        row["ts"] -= skew_us if row["cat"] in ("kernel", "gpu_memcpy") else 0
    said = [item for item in report(machine.trace()).health if item.id == "clocks"]
    assert bool(said) == bool(skew_us)
    assert not said or "at least 33 µs" in said[0].message  # the latency of a launch, 7 µs, is hidden in it


@pytest.mark.parametrize(
    ("looks_up", "node_name", "writes"),
    [
        ("embedding", "EmbeddingBackward0", "embedding_dense_backward"),
        ("embedding_bag", "EmbeddingBagBackward0", "_embedding_bag_dense_backward"),
    ],
)
def test_an_embedding_has_its_share_of_an_update_on_lists(looks_up: str, node_name: str, writes: str) -> None:
    table, rest = [200_000, 64], [1_000, 1_000]

    def loop(machine: Machine, fixed: bool) -> None:
        number = {"Sequence number": 900}
        looked = {"Input Dims": [table, [64]], "Input type": ["float", "long int"]}
        with machine.op(f"aten::{looks_up}", **looked, **number):
            machine.work("indexSelectLargeIndex", 10)
        machine.layers(10, 100)
        node = {**number, "Fwd thread id": 1}
        with (
            machine.op(f"autograd::engine::evaluate_function: {node_name}", **node),
            machine.op(f"aten::{writes}"),
        ):
            machine.work("FillFunctor", 1 if fixed else 100)
        start = machine.now
        machine.python(5)
        lists = {"Input Dims": [[table, rest]], "Input type": ["TensorList"]}
        with machine.op("aten::_foreach_addcdiv_", **lists):
            machine.work("multi_tensor_apply_kernel", 2_000 * (1_000_000 / 13_800_000 if fixed else 1))
        machine.rows.append(
            {"ph": "X", "cat": "user_annotation", "name": "Optimizer.step#Adam.step", "pid": 1, "tid": 1, "args": {}}
            | {"ts": start, "dur": machine.now - start}
        )

    slow, fast = run(loop), run(loop, fixed=True)
    (finding,) = found(report(slow.trace()), "dense-embedding-gradients")
    assert finding.saving is not None
    assert finding.saving.high_us == pytest.approx(slow.step_us() - fast.step_us(), rel=0.1)
