"""What the device works for which line, against drawings worked out by hand."""

import json

import pytest

from advisor.analyses.costs.device_line_shares import DeviceLineShares
from advisor.computed import Computed, Missing
from advisor.trace.read.load import read_bytes

NODE = "autograd::engine::evaluate_function: MmBackward0"


def rows(step, device):
    """1,000 µs: the forward op of line 10, its node, a collective and an optimizer's op of line 30.

    device: µs of their device work, in that order; one without any starts none.
    """
    at, first = 1000 * step, 10 * step

    def row(name, start, dur, kind="cpu_op", tid=1, **args):
        return {"ph": "X", "cat": kind, "name": name, "pid": 1, "tid": tid, "ts": at + start, "dur": dur, "args": args}

    yield row(f"ProfilerStep#{step}", 0, 1000, "user_annotation")
    calls = (
        ("aten::mm", 10, "gemm", {"Sequence number": first + 1}),
        (NODE, 20, "gemm", {"Sequence number": first + 1, "Fwd thread id": 1}),
        ("nccl:all_reduce", 20, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", {}),
        ("aten::_foreach_add_", 30, "multi_tensor_apply_kernel", {}),
    )
    start = 0
    for index, ((name, line, kernel, args), dur) in enumerate(zip(calls, device, strict=True)):
        if not dur:
            continue
        known = {"correlation": first + index + 1}
        yield row(name, 20 * index, 18, **args, **{"Call stack": f"train.py({line}): train"})
        yield row("cudaLaunchKernel", 20 * index + 5, 5, "cuda_runtime", **known)
        yield row(kernel, 30 + start, dur, "kernel", 7, stream=7, device=0, **known)
        start += dur


def shares(*device):
    found = [row for step in (0, 1) for row in rows(step, device)]
    computed = Computed(trace=read_bytes(json.dumps({"traceEvents": found}).encode(), "made"))
    return {line.where.line: line for line in computed.get(DeviceLineShares).lines}


def test_kernels_of_the_backward_pass_count_for_the_line_of_the_forward_operator():
    lines = shares(200, 400, 0, 100)
    assert (lines[10].low, lines[10].high) == (pytest.approx(0.6, abs=0.01), pytest.approx(0.6, abs=0.01))
    assert lines[10].backward == pytest.approx(2 / 3, abs=0.01)
    assert lines[10].ops == 2
    assert lines[30].low == pytest.approx(0.1, abs=0.01)
    assert 20 not in lines


def test_communication_counts_for_no_line():
    assert set(shares(200, 400, 200, 100)) == {10, 30}


def test_lines_of_less_than_a_hundredth_of_the_step_are_left_out():
    assert set(shares(200, 400, 0, 5)) == {10}


def test_without_device_work_there_are_none():
    with pytest.raises(Missing, match="no device work"):
        shares(0, 0, 0, 0)


def test_where_most_work_has_no_known_line_there_are_none():
    """Without the nodes of the backward pass, as torch 1.8 records it, what they start has no line."""
    found = [row for step in (0, 1) for row in rows(step, (200, 400, 0, 100))]
    for row in found:
        if row["name"] == NODE:
            row["name"], row["args"] = "MmBackward", {}
    computed = Computed(trace=read_bytes(json.dumps({"traceEvents": found}).encode(), "made"))
    with pytest.raises(Missing, match="most of the device work"):
        computed.get(DeviceLineShares)
