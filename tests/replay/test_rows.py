"""Replays of traces written row by row, for what a drawing cannot say. Times in µs; answers are worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from replay_drawings import host, replayed, work

from advisor.replay.edits import fuse, remove, scale, unsync

Rows = list[dict[str, Any]]


def row(cat: str, name: str, tid: Any, start: float, dur: float, **args: Any) -> dict[str, Any]:
    """A complete event; `pid` 0 is the device, 1 the host."""
    on_device = cat in ("kernel", "gpu_memcpy", "cuda_sync")
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 0 if on_device else 1,
        "tid": tid,
        "ts": 1e6 + start,
        "dur": dur,
        "args": args,
    }


def call(name: str, start: float, dur: float, correlation: int) -> dict[str, Any]:
    """A runtime call of the loop's thread."""
    return row("cuda_runtime", name, 1, start, dur, correlation=correlation)


def kernel(name: str, stream: int, start: float, dur: float, correlation: int | None = None) -> dict[str, Any]:
    """A kernel."""
    linked = {} if correlation is None else {"correlation": correlation}
    return row("kernel", name, stream, start, dur, device=0, stream=stream, **linked)


def step(number: int, start: float, dur: float) -> dict[str, Any]:
    """A step of the loop."""
    return row("user_annotation", f"ProfilerStep#{number}", 1, start, dur)


def trace(rows: Rows) -> dict[str, Any]:
    """Rows as the JSON of a file."""
    return {"schemaVersion": 1, "deviceProperties": [], "traceEvents": sorted(rows, key=lambda one: one["ts"])}


def about(us: float, by: float = 15) -> Any:
    """Within the few µs of launch calls and delays."""
    return pytest.approx(us, abs=by)


def waiting_steps(stated: bool) -> Rows:
    """Two steps of 1,000 µs, in which a stream waits for another.

    Stream 7: M 0-200, K 200-400, launched at 0 and 20. L on stream 8 is launched at 500 after cudaStreamWaitEvent and
    runs 507-807; a device synchronisation lasts from 600 until 807. The event was recorded between the launches of M
    and K.
    """
    rows: Rows = []
    for number, at in enumerate((0.0, 1000.0)):
        first = 100 * (number + 1)
        rows += [
            step(number, at, 1000),
            call("cudaLaunchKernel", at, 5, first),
            call("cudaEventRecord", at + 10, 2, first + 1),
            call("cudaLaunchKernel", at + 20, 5, first + 2),
            call("cudaStreamWaitEvent", at + 480, 2, first + 3),
            call("cudaLaunchKernel", at + 500, 5, first + 4),
            call("cudaDeviceSynchronize", at + 600, 207, first + 5),
            kernel("M", 7, at + 7, 193, first),
            kernel("K", 7, at + 200, 200, first + 2),
            kernel("L", 8, at + 507, 300, first + 4),
        ]
        if stated:
            waited = {"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": first + 1}
            rows.append(
                row(
                    "cuda_sync",
                    "Stream Wait Event",
                    8,
                    at + 481,
                    1,
                    stream=8,
                    correlation=first + 3,
                    device=0,
                    **waited,
                )
            )
    return rows


def test_a_wait_that_the_trace_states_is_believed() -> None:
    # K at three times its length ends at 800. L waits for M only, so it still runs 507-807, and so the step stays.
    read, replay = replayed(trace(waiting_steps(stated=True)))
    assert replay.step_us == about(1000)
    assert not [note for note in replay.notes if "streams" in note]
    assert replay.step_after_us(scale(work(read, "K"), 3)) == about(1000)


def test_a_wait_that_the_trace_does_not_state_is_inferred() -> None:
    # The same without the row: the last launch before the wait was K's, and its end allows that L waited for it.
    # K at three times its length ends at 800, L runs 800-1,100, 193 µs of Python follow: 1,293.
    read, replay = replayed(trace(waiting_steps(stated=False)))
    assert replay.step_us == about(1000)
    assert [note for note in replay.notes if "2 waits between streams" in note]
    assert replay.step_after_us(scale(work(read, "K"), 3)) == about(1293)


def full_queue(depth: int, steps: int = 3, launches: int = 400) -> Rows:
    """Launches of 10 µs each against kernels of 20 µs, on a device that takes `depth` launches ahead."""
    rows: Rows = []
    now = free = 0.0
    begun: list[float] = []
    for number in range(steps):
        start = now
        for _ in range(launches):
            at = len(begun)
            call_start, now = now + 5, now + 10
            if at >= depth:
                now = max(now, begun[at - depth])
            rows.append(call("cudaLaunchKernel", call_start, now - call_start, at + 1))
            begun.append(max(free, now + 2))
            free = begun[-1] + 20
            rows.append(kernel("K", 7, begun[-1], 20, at + 1))
        rows.append(step(number, start, now - start))
    return rows


def test_a_full_launch_queue_makes_the_host_as_slow_as_the_device() -> None:
    # In the steady state a step is 400 x 20 = 8,000 µs. Host work of 4,000 µs a step hides behind it entirely; with
    # kernels of 5 µs (2,000 a step) the host's own 4,000 set the pace.
    read, replay = replayed(trace(full_queue(depth=300)))
    assert [note for note in replay.notes if "launches before the host has to wait" in note]
    assert replay.error_share < 0.01
    assert replay.step_us == about(8000, by=40)
    assert replay.step_after_us(scale(work(read), 0.25)) == about(4000, by=40)
    assert replay.step_after_us(remove(host(read, "cudaLaunchKernel"))) < replay.step_us


def test_work_that_was_queued_before_the_window_is_no_part_of_a_step() -> None:
    # 500 µs of kernels of an unrecorded step run when the window opens; the steps themselves take 400 µs of host work
    # and 100 µs of device work.
    rows: Rows = [kernel("old", 7, at, 100) for at in (-50.0, 60.0, 170.0, 280.0)]
    for number, at in enumerate((0.0, 400.0, 800.0)):
        begin = max(at + 7, 390.0)
        rows += [step(number, at, 400), call("cudaLaunchKernel", at, 5, number + 1)]
        rows.append(kernel("new", 7, begin, 100, number + 1) if number else kernel("new", 7, 390, 17, number + 1))
    read, replay = replayed(trace(rows))
    assert replay.error_share < 0.02
    assert replay.step_us == about(400)
    assert replay.step_after_us(remove(work(read, "old"))) == about(400)


def test_one_launch_of_a_graph_starts_many_kernels() -> None:
    # A graph launch (10 µs) starts three kernels of 100 µs; the host waits for them, then runs 90 µs of Python: 402.
    # Each kernel at half: 252. Without the wait the device's 300 set the pace.
    rows: Rows = []
    for number, at in enumerate((0.0, 402.0)):
        rows += [
            step(number, at, 402),
            call("cudaGraphLaunch", at, 10, 10 * (number + 1)),
            call("cudaStreamSynchronize", at + 10, 302, 10 * (number + 1) + 1),
            *(kernel("K", 7, at + 12 + 100 * i, 100, 10 * (number + 1)) for i in range(3)),
        ]
    read, replay = replayed(trace(rows))
    assert replay.step_us == about(402)
    assert replay.step_after_us(scale(work(read), 0.5)) == about(252)
    assert replay.step_after_us(unsync(host(read, "Synchronize"))) == about(300)


def test_a_stream_synchronisation_waits_for_its_own_stream_only() -> None:
    # K 7-107 on stream 7 and L 20-520 on stream 8, launched before K. The thread's last launch was K's: the call waits
    # for stream 7 and returns at 107; the step ends at 600. L at a fifth changes nothing; K at twice adds its 100 µs.
    rows: Rows = []
    for number, at in enumerate((0.0, 600.0)):
        first = 10 * (number + 1)
        rows += [
            step(number, at, 600),
            call("cudaLaunchKernel", at, 5, first),
            call("cudaLaunchKernel", at + 10, 5, first + 1),
            call("cudaStreamSynchronize", at + 20, 97, first + 2),
            kernel("L", 8, at + 7, 500, first),
            kernel("K", 7, at + 17, 100, first + 1),
        ]
    read, replay = replayed(trace(rows))
    assert replay.step_us == about(600)
    assert replay.step_after_us(scale(work(read, "L"), 0.2)) == about(600)
    assert replay.step_after_us(scale(work(read, "K"), 2)) == about(700)


def test_freeing_memory_waits_for_the_device() -> None:
    # cudaFree from 20 until the kernel is done at 307, then 93 µs: 400 a step. Without it: the device's 300.
    rows: Rows = []
    for number, at in enumerate((0.0, 400.0)):
        rows += [
            step(number, at, 400),
            call("cudaLaunchKernel", at, 5, 10 * (number + 1)),
            call("cudaFree", at + 20, 287, 10 * (number + 1) + 1),
            kernel("K", 7, at + 7, 300, 10 * (number + 1)),
        ]
    read, replay = replayed(trace(rows))
    assert replay.step_us == about(400)
    assert replay.step_after_us(remove(host(read, "cudaFree"))) == about(300)


def test_times_that_contradict_each_other_are_replayed_all_the_same() -> None:
    # The device's clock is 500 µs ahead: kernels "start" before their launches, waits return before their work began.
    rows: Rows = []
    for number, at in enumerate((0.0, 1000.0)):
        rows += [
            step(number, at, 1000),
            call("cudaLaunchKernel", at + 600, 5, 10 * (number + 1)),
            call("cudaDeviceSynchronize", at + 610, 290, 10 * (number + 1) + 1),
            kernel("K", 7, at + 107, 300, 10 * (number + 1)),
        ]
    read, replay = replayed(trace(rows))
    assert replay.step_us > 0
    assert replay.saving(fuse(host(read, "cudaLaunchKernel")), how="").high_us <= replay.scale.step_us
