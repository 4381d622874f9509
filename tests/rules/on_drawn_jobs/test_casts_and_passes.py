"""Conversions, batches taken apart and waits on a made-up device: the same loop without the fault is the truth."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest
from drawn_loops import Loop, found, report, run
from host_and_device import Machine

_BF16, _FP32 = "c10::BFloat16", "float"
_CAST = "void at::native::unrolled_elementwise_kernel<direct_copy_kernel_cuda>"
_GEMM = "ampere_bf16_s16816gemm_bf16_128x128_tn"


def _linear(machine: Machine, weight: list[int], *, cast: bool, **args: object) -> None:
    """F.linear on a weight in fp32 under autocast, as PyTorch's rows show it."""
    tokens, half = [64, weight[1]], {"Input type": [_BF16, _BF16, _BF16]}
    with machine.op("aten::linear", **{"Input Dims": [tokens, weight, []], "Input type": [_BF16, _FP32, ""]}):
        if cast:
            copied = {"Input Dims": [weight, weight, []], "Input type": [_BF16, _FP32, "Scalar"]}
            with machine.op("aten::to"), machine.op("aten::_to_copy", **args), machine.op("aten::copy_", **copied):
                machine.work(_CAST, 60)
        with machine.op("aten::linear", **{"Input Dims": [tokens, weight, []], **half}), machine.op("aten::addmm"):
            machine.work(_GEMM, 100)


def _generating(machine: Machine, fixed: bool) -> None:
    for _ in range(30):
        _linear(machine, [4096, 1024], cast=not fixed)


def _training(machine: Machine, fixed: bool, *, teacher: Sequence[int], student: Sequence[int]) -> None:
    """A teacher whose weights are frozen, and a student that learns: each of its weights stores one gradient."""
    numbers = {"Sequence number": 7}
    for _ in range(20):
        _linear(machine, list(teacher), cast=not fixed, **numbers)
    for _ in range(20):
        _linear(machine, list(student), cast=True, **numbers)
    for _ in range(20):
        with machine.op("autograd::engine::evaluate_function: AddmmBackward0", **numbers):
            machine.work(_GEMM, 200)
        node = "torch::autograd::AccumulateGrad"
        with machine.op(f"autograd::engine::evaluate_function: {node}"), machine.op(node, **{"Input Dims": [student]}):
            pass


_SAME, _OTHER = [2048, 1024], [4096, 1024]


@pytest.mark.parametrize(
    ("loop", "fix"),
    [
        (_generating, "Convert the model to bf16 once, before the loop"),
        (partial(_training, teacher=_OTHER, student=_SAME), "Keep frozen weights in bf16"),
    ],
)
def test_weights_that_nothing_changes_are_converted_once(loop: Loop, fix: str) -> None:
    slow, fast = run(loop), run(loop, fixed=True)
    gain_us = slow.step_us() - fast.step_us()
    assert gain_us > 0.05 * slow.step_us()
    (finding,) = found(report(slow.trace()), "repeated-casts")
    assert finding.saving is not None
    assert finding.saving.low_us == pytest.approx(gain_us, rel=0.05)
    assert finding.saving.high_us == pytest.approx(gain_us, rel=0.05)
    assert finding.fix is not None
    assert finding.fix.title == fix
    assert not found(report(fast.trace()), "repeated-casts")


def test_a_teacher_of_the_students_shapes_counts_beyond_its_gradients() -> None:
    loop = partial(_training, teacher=_SAME, student=_SAME)
    (finding,) = found(report(run(loop).trace()), "repeated-casts")
    assert finding.facts["conversions"] == 20
    assert finding.fix is not None
    assert finding.fix.title == "Keep frozen weights in bf16"


def test_weights_that_are_trained_and_used_twice_are_kept_by_one_context() -> None:
    def loop(machine: Machine, fixed: bool) -> None:
        numbers = {"Sequence number": 7}
        for _ in range(40):
            _linear(machine, _SAME, cast=True, **numbers)
        for number in range(40):
            for node in ("ToCopyBackward0", *(["torch::autograd::AccumulateGrad"] if number % 2 else [])):
                around = machine.op(f"autograd::engine::evaluate_function: {node}", **numbers)
                with around, machine.op(node, **{"Input Dims": [_SAME]}):
                    machine.work(_CAST, 60)

    (finding,) = found(report(run(loop).trace()), "repeated-casts")
    assert finding.facts["conversions"] == 20
    assert finding.fix is not None
    assert finding.fix.title == "Call the model within one `torch.autocast` context, which keeps converted weights"


def _passes(machine: Machine, fixed: bool, *, dims: Sequence[int] = (32, 3, 64, 64), backward: bool = True) -> None:
    """A batch of 32 that the loop takes apart: the kernels of one sample are as short as kernels are."""
    for number in range(1 if fixed else 32):
        if not fixed:
            with machine.op(
                "aten::select", **{"Input Dims": [dims, [], []], "Concrete Inputs": ["", "0", str(number)]}
            ):
                pass
        for layer in range(10):
            shapes = {"Input Dims": [[32 if fixed else 1, 512], [512, 512], []], "Sequence number": 10 * number + layer}
            with machine.op("aten::linear", **shapes), machine.op("aten::addmm"):
                machine.work(_GEMM, 6 if fixed else 3)
        for layer in reversed(range(10 if backward else 0)):
            node = "autograd::engine::evaluate_function: AddmmBackward0"
            with machine.op(node, **{"Sequence number": 10 * number + layer}):
                machine.work(_GEMM, 6 if fixed else 3)
    start = machine.now
    machine.python(20)
    row = {"ph": "X", "cat": "user_annotation", "name": "Optimizer.step#SGD.step", "pid": 1, "tid": 1, "args": {}}
    machine.rows.append(row | {"ts": start, "dur": machine.now - start})


def test_a_batch_that_is_taken_apart_is_no_batch_of_one() -> None:
    slow, fast = run(_passes), run(_passes, fixed=True)
    gain_us = slow.step_us() - fast.step_us()
    (finding,) = found(report(slow.trace()), "small-batch")
    assert "takes a batch of 32 apart and runs the model 32 times, on 1 sample each" in finding.message
    assert finding.fix is not None
    assert "learning rate" not in finding.fix.title
    assert finding.saving is not None
    assert 0.6 * gain_us < finding.saving.high_us <= 1.05 * gain_us


def test_points_of_time_are_not_taken_for_samples() -> None:
    told = report(run(partial(_passes, dims=(32, 1, 64))).trace())
    assert all("takes a batch" not in finding.message for finding in found(told, "small-batch"))


def _read(machine: Machine, fixed: bool) -> None:
    """The loss is read at the end of a step; a host that is ahead would fetch the next batch meanwhile."""
    _fetch(machine, 1_000)
    machine.layers(10, 200)
    if not fixed:
        machine.read()
        machine.python(60)


def _fetch(machine: Machine, us: float) -> None:
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    row = {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "args": {}}
    machine.rows.append(row | {"ts": machine.now, "dur": us})
    machine.python(us)


def test_a_wait_costs_what_a_host_that_is_ahead_would_have_hidden() -> None:
    slow, fast = run(_read), run(_read, fixed=True)
    gain_us = slow.step_us() - fast.step_us()
    assert gain_us > 1_000
    (finding,) = found(report(slow.trace()), "sync-in-loop")
    assert finding.saving is not None
    assert finding.saving.high_us == pytest.approx(gain_us, rel=0.1)


def _offloaded(machine: Machine, fixed: bool) -> None:
    """Gradients go to pinned memory, the host updates, and weights come back."""
    machine.layers(20, 200)
    for _ in range(4):
        with machine.op("aten::copy_"):
            machine.work("Memcpy DtoH (Device -> Pinned)", 300, "gpu_memcpy", "cudaMemcpyAsync", bytes=8 << 20)
    machine.call("cudaStreamSynchronize", waits=True)
    machine.python(4_000)
    for _ in range(4):
        with machine.op("aten::copy_"):
            machine.work("Memcpy HtoD (Pinned -> Device)", 300, "gpu_memcpy", "cudaMemcpyAsync", bytes=8 << 20)


def test_a_wait_for_what_the_host_reads_next_is_needed() -> None:
    told = report(run(_offloaded).trace())
    assert not found(told, "sync-in-loop")
    assert all(finding.fix is None for finding in found(told, "blocking-copies"))


@pytest.mark.parametrize(("taken_us", "said"), [(300, "most are ready in time"), (2_000, "more slowly than the step")])
def test_batches_that_workers_hand_over_are_not_late(taken_us: float, said: str) -> None:
    machine = Machine()
    for _ in range(8):
        with machine.step():
            _fetch(machine, taken_us)
            machine.layers(10, 200)
            machine.read()
    (finding,) = found(report(machine.trace()), "input-bound")
    assert said in finding.message
    assert (finding.fix is None) is (taken_us < 500)


def _prefetched(machine: Machine, fixed: bool, *, late_us: float = 0) -> None:
    """A copy on a stream of its own, for which the kernels wait; or the host launches the first of them after it."""
    with machine.op("aten::copy_"):
        machine.work("Memcpy HtoD (Pinned -> Device)", 1_500, "gpu_memcpy", "cudaMemcpyAsync", bytes=32 << 20)
    machine.call("cudaEventRecord", 1)
    machine.call("cudaStreamWaitEvent", 1)
    machine.python(late_us)
    machine.layers(20, 400)
    machine.read()
    for _ in range(6):  # each on an empty stream: 7 us from the call to the kernel
        machine.work("small_kernel", 1)
        machine.python(20)
    machine.read()


@pytest.mark.parametrize(
    ("earlier_us", "late_us", "waits"), [(0, 0, True), (5, 0, True), (20, 0, False), (3, 1_489, False)]
)
def test_a_prefetch_that_is_waited_for_at_once_hides_nothing(earlier_us: float, late_us: float, waits: bool) -> None:
    """A kernel that waits starts as late after the copy as this trace's launches take, and was launched before."""
    machine = run(partial(_prefetched, late_us=late_us), steps=8)
    for row in machine.rows:
        if row["name"].startswith("Memcpy HtoD"):
            row["tid"] = row["args"]["stream"] = 20
            row["ts"] -= earlier_us
    told = found(report(machine.trace()), "blocking-copies")
    assert bool(told) is waits
    assert all("on a stream that the kernels wait for" in finding.message for finding in told)


def test_copies_that_repeat_heads_are_one_finding() -> None:
    heads, cache = {"Input Dims": [[16, 8, 4, 4096, 128], []]}, [16, 32, 4096, 128]

    def loop(machine: Machine, fixed: bool) -> None:
        for _ in range(20):
            for _ in range(0 if fixed else 2):
                with machine.op("aten::reshape"), machine.op("aten::clone", **heads), machine.op("aten::copy_"):
                    machine.work("void at::native::elementwise_kernel<direct_copy_kernel_cuda>", 150)
            with machine.op("aten::scaled_dot_product_attention", **{"Input Dims": [[16, 32, 1, 128], cache, cache]}):
                machine.work("flash_fwd_splitkv_kernel", 200)

    slow, fast = run(loop), run(loop, fixed=True)
    told = report(slow.trace())
    (finding,) = found(told, "repeated-heads")
    assert finding.saving is not None
    assert finding.saving.high_us == pytest.approx(slow.step_us() - fast.step_us(), rel=0.05)
    assert not found(told, "device-copies")
    assert not found(told, "unfused-elementwise")
