"""Replays of calls that follow each other without a pause, worked out by hand. Times in µs, exact to the nanosecond."""

from __future__ import annotations

from typing import Any

import pytest
from replay_drawings import replayed

Rows = list[dict[str, Any]]


def row(cat: str, name: str, tid: Any, start: float, dur: float, **args: Any) -> dict[str, Any]:
    """A complete event; `pid` 0 is the device, 1 the host."""
    pid = 0 if cat in ("kernel", "gpu_memcpy") else 1
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": 1e6 + start, "dur": dur, "args": args}


def steps(length: int, count: int, one: Any) -> dict[str, Any]:
    """`count` steps of `length` µs, each made of the rows that `one(start, number)` gives; as the JSON of a file."""
    rows: Rows = []
    for number in range(count):
        start = number * length
        rows += [row("user_annotation", f"ProfilerStep#{number}", 1, start, length), *one(start, number)]
    rows.sort(key=lambda made: (made["ts"], -made["dur"]))
    return {"schemaVersion": 1, "deviceProperties": [], "traceEvents": rows}


def idle_then_copy(idle_us: int) -> Any:
    """A synchronisation of an idle device, and at its very end a copy from pageable memory: 7 + 10 + 3 µs."""

    def one(start: int, number: int) -> Rows:
        begin, linked = start + idle_us, 10 * number + 1
        moved = {"device": 0, "stream": 7, "bytes": 1000, "correlation": linked}
        return [
            row("cuda_runtime", "cudaDeviceSynchronize", 1, start, idle_us, correlation=10 * number + 2),
            row("cuda_runtime", "cudaMemcpyAsync", 1, begin, 20, correlation=linked),
            row("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 7, begin + 7, 10, **moved),
        ]

    return one


@pytest.mark.parametrize("idle_us", [5, 30, 50, 120])
def test_a_wait_for_an_idle_device_ends_before_the_copy_that_begins_at_its_end(idle_us: int) -> None:
    # The call's own time, then 7 µs until the data moves, 10 of moving, 3 until the call returns: nothing overlaps.
    _, replay = replayed(steps(idle_us + 20, 4, idle_then_copy(idle_us)))
    assert replay.error_share < 1e-6
    assert replay.step_us == pytest.approx(idle_us + 20, rel=1e-6)


def nested_waits(start: int, number: int) -> Rows:
    """A kernel 10-20 of a launch at 0-8, then a stream synchronisation 30-80 inside a device synchronisation 29-82."""
    linked = 10 * number + 1
    return [
        row("cuda_runtime", "cudaLaunchKernel", 1, start, 8, correlation=linked),
        row("kernel", "mul_kernel", 7, start + 10, 10, device=0, stream=7, correlation=linked),
        row("cuda_runtime", "cudaDeviceSynchronize", 1, start + 29, 53, correlation=linked + 1),
        row("cuda_runtime", "cudaStreamSynchronize", 1, start + 30, 50, correlation=linked + 2),
    ]


def test_a_wait_inside_a_wait_counts_once() -> None:
    # 82 µs until the outer wait returns, 8 µs of Python.
    _, replay = replayed(steps(90, 4, nested_waits))
    assert replay.error_share < 1e-6
    assert replay.step_us == pytest.approx(90, rel=1e-6)
