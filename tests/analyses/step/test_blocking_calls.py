"""What calls wait for, and which work nobody launched in the window, on rows as Kineto writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from advisor.analyses.step.blocking_calls import Drains
from advisor.api import D2H_PAGEABLE, H2D_PAGEABLE, TO_BLOCKING, Ev, GpuIdle, Syncs, draw
from advisor.computed import Computed
from advisor.trace.read.load import read_bytes


def analysed(trace: dict[str, Any]) -> Computed:
    return Computed(trace=read_bytes(json.dumps(trace).encode(), "made"))


def row(name: str, start: float, dur: float, cat: str = "cpu_op", **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": dur, "args": args}


def work(name: str, start: float, dur: float, cat: str = "kernel", stream: int = 7, **args: Any) -> dict[str, Any]:
    return row(name, start, dur, cat, device=0, stream=stream, **args) | {"tid": stream}


def idle_of(rows: list[dict[str, Any]]) -> GpuIdle:
    return analysed({"traceEvents": rows}).get(GpuIdle)


def test_a_short_read_that_waits_for_the_device_is_no_work_of_the_host() -> None:
    """704 bytes in a call of 20 ms, in which the device waits for others: the host does nothing meanwhile."""
    rows = [
        row("ProfilerStep#1", 0, 25_000, "user_annotation"),
        row("aten::mm", 10, 20),
        row("cudaLaunchKernel", 15, 5, "cuda_runtime", correlation=1),
        work("gemm", 50, 950, correlation=1),
        row("aten::copy_", 1_010, 20_100),
        row("cudaMemcpyAsync", 1_020, 20_000, "cuda_runtime", correlation=2),
        work("Memcpy DtoH (Device -> Pageable)", 21_000, 2, "gpu_memcpy", bytes=704, correlation=2),
        row("aten::mm", 21_200, 20),
        row("cudaLaunchKernel", 21_205, 5, "cuda_runtime", correlation=3),
        work("gemm", 21_250, 3_700, correlation=3),
    ]
    assert idle_of(rows).by_cause_us["idle_host"] < 200
    # The same call for a copy to the device is the host's: it stages what is pageable.
    rows[6]["name"] = "Memcpy HtoD (Pageable -> Device)"
    assert idle_of(rows).by_cause_us["idle_host"] > 19_000


def test_work_that_was_queued_before_the_recording_waits_for_no_host() -> None:
    """A gap before work without a launch, on a stream whose later work has one: that was queued all the time."""
    rows = [
        row("ProfilerStep#1", 0, 9_000, "user_annotation"),
        work("early", 0, 1_000),
        work("early", 4_000, 1_000),
        row("aten::mm", 10, 3_000),
        row("cudaLaunchKernel", 3_020, 5, "cuda_runtime", correlation=1),
        work("gemm", 5_000, 4_000, correlation=1),
    ]
    found = idle_of(rows)
    assert (found.by_cause_us["idle_unknown"], found.nobodys_us) == (3_000, 3_000)


def kineto(name: str, cat: str, start: float, dur: float, correlation: int = 0, **args: object) -> dict[str, object]:
    args |= {"correlation": correlation} if correlation else {}
    tid = 7 if cat in ("kernel", "gpu_memcpy") else 1
    where = {"device": 0, "stream": 7} if tid == 7 else {}
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 1,
        "tid": tid,
        "ts": start,
        "dur": dur,
        "args": args | where,
    }


@pytest.mark.parametrize("returns_late", [True, False])
def test_a_read_into_unpinned_memory_that_returned_late_was_a_wait(returns_late: bool) -> None:
    """704 bytes behind a kernel of 400 µs: the copy takes 5 µs, and the call that made it as long as the kernel."""

    rows = []
    for step in range(2):
        at, key = 1000.0 * step, 10 * step
        rows += [
            kineto(f"ProfilerStep#{step}", "user_annotation", at, 1000),
            kineto("cudaLaunchKernel", "cuda_runtime", at + 10, 5, key + 1),
            kineto("gemm", "kernel", at + 20, 400, key + 1),
            kineto("aten::copy_", "cpu_op", at + 30, 410 if returns_late else 20),
            kineto("cudaMemcpyAsync", "cuda_runtime", at + 35, 400 if returns_late else 10, key + 2),
            kineto("Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", at + 425, 5, key + 2, bytes=704),
            kineto("cudaLaunchKernel", "cuda_runtime", at + 600, 5, key + 3),
            kineto("gemm", "kernel", at + 610, 300, key + 3),
        ]
    known = analysed({"traceEvents": rows})
    syncs = known.get(Syncs)
    assert syncs.count == 0  # what a call waited for is no count
    assert [(site.op, round(site.us)) for site in syncs.sites] == ([("aten::copy_", 400)] if returns_late else [])
    idle = known.get(GpuIdle).by_cause_us["idle_sync"]
    assert idle == pytest.approx(610 - 430 if returns_late else 0, abs=12)


@pytest.mark.parametrize(
    ("first", "second", "calls"),
    [(H2D_PAGEABLE, D2H_PAGEABLE, [1, 1]), (H2D_PAGEABLE, H2D_PAGEABLE, [2]), (D2H_PAGEABLE, D2H_PAGEABLE, [2])],
)
def test_copies_to_the_device_and_from_it_are_two_places(first: Ev, second: Ev, calls: list[int]) -> None:
    """`x.to(device)` and `mask.to("cpu")` are the same op; without lines only what they copy tells them apart."""
    drawing = draw(
        """
        step   [1                                 ][2                                 ]
        cpu    [T     ]   [F ][U          ]        [T     ]   [F ][U          ]
        gpu 7   [A   ]        [K      ][B ]         [A   ]        [K      ][B ]
        """,
        us=100,
        T=TO_BLOCKING,
        U=TO_BLOCKING,
        A=first,
        B=second,
    )
    assert [site.calls for site in analysed(dict(drawing)).get(Syncs).sites if site.op == "aten::to"] == calls


def test_an_op_that_copies_both_ways_does_not_count_as_one_to_the_device() -> None:
    """`tensor.index_put_` with a mask and a tensor of the host: no loader's memory is what it waits for."""
    rows = []
    for step in range(2):
        at, key = 1000.0 * step, 10 * step
        rows += [
            kineto(f"ProfilerStep#{step}", "user_annotation", at, 1000),
            kineto("cudaLaunchKernel", "cuda_runtime", at + 10, 5, key + 1),
            kineto("gemm", "kernel", at + 20, 400, key + 1),
            kineto("aten::to", "cpu_op", at + 30, 420),
            kineto("cudaMemcpyAsync", "cuda_runtime", at + 35, 5, key + 2),
            kineto("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", at + 421, 5, key + 2, bytes=704),
            kineto("cudaMemcpyAsync", "cuda_runtime", at + 45, 5, key + 3),
            kineto("Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", at + 428, 5, key + 3, bytes=8),
            kineto("cudaStreamSynchronize", "cuda_runtime", at + 55, 385),
        ]
    drains = analysed({"traceEvents": rows}).get(Drains)
    assert len(drains.call)
    assert not drains.to_device.any()
