"""How true and how fast the replay is: one row per trace.

    python tests/benchmarks/reading/replay.py                # the recorded traces beside the checkout, and a made step
    python tests/benchmarks/reading/replay.py TRACE…         # any traces

Columns: events; steps; measured and replayed window and makespan with their error (the larger one counts); median error
of kernel starts; the steady step; milliseconds to build the graph, to order it, to play it once, and for one edit
(two hypotheses about the profiler's cost, until growth has settled). Times are CPU time, the best of three: other load
on the machine hardly changes them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from advisor.analyses.base.device import Device
from advisor.analyses.base.links import Links
from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.steps import Steps
from advisor.analyses.costs.replay import Replay
from advisor.computed import Computed
from advisor.replay.edits import scale
from advisor.replay.graph import build
from advisor.replay.play_order import prepare
from advisor.replay.simulate import play_once, weights_of
from advisor.trace.events import Category, Trace
from advisor.trace.read.load import load, read_bytes

TRACES = Path(__file__).resolve().parents[3].parent / "shared" / "traces"
T = TypeVar("T")
HEAD = (
    "trace",
    "events",
    "steps",
    "window ms",
    "replayed",
    "error",
    "starts µs",
    "step ms",
    "build",
    "order",
    "play",
    "edit",
)


def best(function: Callable[[], T]) -> tuple[float, T]:
    """Milliseconds of the fastest of three calls, and what the last returned."""
    times = []
    for _ in range(3):
        begin = time.process_time()
        result = function()
        times.append((time.process_time() - begin) * 1e3)
    return min(times), result


def made_step(events: int = 100_000) -> Trace:
    """One step of that many events: ops of 10 µs in ops, each with a launch and a kernel of 8 µs; a wait every 200."""
    rows: list[dict[str, Any]] = []
    now = free = 0.0
    number = 0
    while len(rows) < events - 1:
        number += 1
        rows.append(_row("aten::mul", "cpu_op", 1, 1, now, 10))
        rows.append(_row("aten::mul_", "cpu_op", 1, 1, now + 1, 8))
        rows.append(_row("cudaLaunchKernel", "cuda_runtime", 1, 1, now + 2, 4, correlation=number))
        free = max(free + 1, now + 8) + 8
        rows.append(_row("mul", "kernel", 0, 7, free - 8, 8, device=0, stream=7, correlation=number))
        now += 10
        if number % 200 == 0:
            end = max(now + 5, free)
            rows.append(_row("cudaDeviceSynchronize", "cuda_runtime", 1, 1, now, end - now))
            now = end
    rows.append(_row("ProfilerStep#1", "user_annotation", 1, 1, 0, now))
    return read_bytes(json.dumps({"schemaVersion": 1, "traceEvents": rows}).encode(), "made step")


def _row(name: str, cat: str, pid: int, tid: int, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": cat, "pid": pid, "tid": tid, "ts": 1e6 + ts, "dur": dur, "args": args}


def measure(trace: Trace) -> tuple[Any, ...] | None:
    """One row of the table; None for a trace that cannot be replayed."""
    computed = Computed(trace=trace)
    if computed.get(Device).kind == "foreign":
        return None
    steps, links, nesting = computed.get(Steps), computed.get(Links), computed.get(Nesting)
    build_ms, graph = best(lambda: build(trace, steps, links, nesting))
    order_ms, plan = best(lambda: prepare(graph))
    play_ms, played = best(lambda: play_once(plan, weights_of(graph)))
    replay = computed.get(Replay)
    kernels = np.flatnonzero(trace.events.of(Category.KERNEL, Category.CPU_OP))
    edit_ms, _ = best(lambda: replay.saving(scale(kernels, 0.5), how=""))
    of_loop = played.point_time[graph.points.thread == 0]
    return (
        len(trace.events),
        graph.steps,
        graph.length_ns / 1e6,
        (of_loop.max() - of_loop.min()) / 1e6,
        replay.error_share,
        replay.start_error_us,
        replay.step_us / 1e3,
        build_ms,
        order_ms,
        play_ms,
        edit_ms,
    )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path)
    paths = parser.parse_args().traces or sorted(TRACES.rglob("*.json.gz"))
    print(" | ".join(HEAD))
    errors = []
    for name, trace in [*((path.name, load(path)) for path in paths), ("made step", made_step())]:
        row = measure(trace)
        if row is None:
            print(f"{name[:44]} | not replayed: the trace's device is unknown")
            continue
        events, steps, window, replayed, error, starts, step, *times = row
        errors.append(error)
        said = "-" if starts is None else f"{starts:.0f}"
        took = " | ".join(f"{ms:.0f}" for ms in times)
        window_said = f"{window:.1f} | {replayed:.1f} | {error:.2%}"
        print(f"{name[:44]} | {events} | {steps} | {window_said} | {said} | {step:.1f} | {took}")
    print(f"median error {statistics.median(errors):.2%}, worst {max(errors):.2%}, over {len(errors)} traces")


if __name__ == "__main__":
    main()
