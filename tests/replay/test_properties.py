"""What must hold for every replay, on generated traces of several threads, streams, waits and copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replay_drawings import replayed

from advisor.analyses.costs.replay import Replay
from advisor.replay.edits import Edit, fuse, move, remove, scale, unsync
from advisor.trace.events import Category, Trace

ROUNDING = 1e-6
Rows = list[dict[str, Any]]


def row(name: str, cat: str, tid: Any, start: float, dur: float, **args: Any) -> dict[str, Any]:
    """A complete event; times in µs."""
    pid = 0 if cat in ("kernel", "gpu_memcpy") else 1
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": 1e6 + start, "dur": dur, "args": args}


class Machine:
    """Runs a made-up program on a machine with one host thread (and a helper), two streams, and writes its trace."""

    def __init__(self) -> None:
        self.rows: Rows = []
        self.now, self.helper = 0.0, 0.0
        self.free = {7: 0.0, 9: 0.0}
        self.correlation = 0

    def op(self, us: float) -> None:
        """An op of the loop that launches nothing."""
        self.rows.append(row("aten::view", "cpu_op", 1, self.now, us))
        self.now += us

    def python(self, us: float) -> None:
        """Python of the loop."""
        self.now += us

    def launch(self, us: float, kernel_us: float, stream: int, thread: int = 1) -> None:
        """An op that launches a kernel."""
        self.correlation += 1
        start = self.now if thread == 1 else self.helper
        self.rows.append(row("aten::mul", "cpu_op", thread, start, us))
        self.rows.append(row("cudaLaunchKernel", "cuda_runtime", thread, start + 1, 4, correlation=self.correlation))
        begin = max(self.free[stream] + 1, start + 7)
        self.rows.append(
            row("mul_kernel", "kernel", stream, begin, kernel_us, device=0, stream=stream, correlation=self.correlation)
        )
        self.free[stream] = begin + kernel_us
        if thread == 1:
            self.now += us
        else:
            self.helper += us

    def wait(self, us: float) -> None:
        """A device synchronisation; on an idle device it takes as long as drawn."""
        end = max(self.now + us, *self.free.values())
        self.correlation += 1
        self.rows.append(
            row("cudaDeviceSynchronize", "cuda_runtime", 1, self.now, end - self.now, correlation=self.correlation)
        )
        self.now = end

    def copy(self, us: float) -> None:
        """A copy from pageable memory: the host stays in the call until the data has moved."""
        self.correlation += 1
        begin = max(self.free[7] + 1, self.now + 7)
        end = begin + us
        self.rows.append(
            row("cudaMemcpyAsync", "cuda_runtime", 1, self.now, end + 3 - self.now, correlation=self.correlation)
        )
        name = "Memcpy HtoD (Pageable -> Device)"
        self.rows.append(
            row(name, "gpu_memcpy", 7, begin, us, device=0, stream=7, correlation=self.correlation, bytes=1000)
        )
        self.free[7], self.now = end, end + 3

    def backward(self, us: float, kernel_us: float) -> None:
        """Ops on a helper thread while the loop waits for it."""
        self.helper = self.now + 5
        self.launch(us, kernel_us, 7, thread=2)
        self.launch(us, kernel_us, 9, thread=2)
        self.now = self.helper + 5

    def step(self, number: int, parts: list[tuple[str, float, float]]) -> None:
        """One iteration of the loop."""
        start = self.now
        for kind, us, device_us in parts:
            if kind in ("op", "python", "wait", "copy"):
                getattr(self, kind)(us)
            elif kind == "backward":
                self.backward(us, device_us)
            else:
                self.launch(us, device_us, int(kind))
        self.python(1)
        self.rows.append(row(f"ProfilerStep#{number}", "user_annotation", 1, start, self.now - start))


durations = st.floats(10, 500).map(lambda us: round(us, 3))
part = st.tuples(st.sampled_from(["op", "python", "wait", "copy", "backward", "7", "9", "7"]), durations, durations)
programs = st.lists(part, min_size=1, max_size=12)


def run(program: list[tuple[str, float, float]], steps: int = 3) -> tuple[Trace, Replay]:
    """The trace of a program and its replay."""
    machine = Machine()
    for number in range(steps):
        machine.step(number, program)
    rows = sorted(machine.rows, key=lambda one: one["ts"])
    return replayed({"schemaVersion": 1, "deviceProperties": [], "traceEvents": rows})


def chosen(trace: Trace, data: st.DataObject, *categories: Category) -> Any:
    """Some rows of these categories."""
    rows = np.flatnonzero(trace.events.of(*categories))
    keep = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    return rows[np.array(keep, bool)] if len(rows) else rows


HOST = (Category.CPU_OP, Category.RUNTIME)
DEVICE = (Category.KERNEL, Category.MEMCPY)
quick = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(programs)
def test_the_unedited_replay_is_the_trace(program: list[tuple[str, float, float]]) -> None:
    _, replay = run(program)
    # Launches of this machine take 7 µs to reach the device, a queued kernel starts 1 µs after the last: one constant
    # cannot be both, so steps of a few dozen µs may be some µs off, and are then not trusted.
    assert replay.error_share < 0.05 + 4 / replay.step_us
    assert replay.low_confidence or replay.error_share <= 0.05


@quick
@given(programs, st.data())
def test_removing_work_never_lengthens_a_step(program: list[tuple[str, float, float]], data: st.DataObject) -> None:
    trace, replay = run(program)
    before = replay.step_us * (1 + ROUNDING)
    rows = chosen(trace, data, *HOST, *DEVICE)
    for edit in (remove(rows), scale(rows, data.draw(st.floats(0, 1))), unsync(rows), fuse(rows)):
        assert replay.step_after_us(edit) <= before


@quick
@given(programs, st.data())
def test_removing_more_never_saves_less(program: list[tuple[str, float, float]], data: st.DataObject) -> None:
    trace, replay = run(program)
    less = chosen(trace, data, *HOST, *DEVICE)
    more = np.union1d(less, chosen(trace, data, *HOST, *DEVICE))
    assert replay.step_after_us(remove(more)) <= replay.step_after_us(remove(less)) * (1 + ROUNDING)


@quick
@given(programs)
def test_an_empty_edit_changes_nothing(program: list[tuple[str, float, float]]) -> None:
    _, replay = run(program)
    nothing = np.empty(0, np.int64)
    assert replay.step_after_us(remove(nothing), unsync(nothing), scale(nothing, 0.5)) == replay.step_us


def edits_of(trace: Trace, data: st.DataObject) -> list[Edit]:
    """Some edits of one trace."""
    makers = st.sampled_from([remove, unsync, fuse, move, lambda rows: scale(rows, 0.3)])
    return [data.draw(makers)(chosen(trace, data, *HOST, *DEVICE)) for _ in range(3)]


@quick
@given(programs, st.data())
def test_edits_commute(program: list[tuple[str, float, float]], data: st.DataObject) -> None:
    trace, replay = run(program)
    edits = edits_of(trace, data)
    assert replay.step_after_us(*edits) == pytest.approx(replay.step_after_us(*reversed(edits)), rel=ROUNDING)


@quick
@given(programs, st.data())
def test_a_saving_never_exceeds_the_step(program: list[tuple[str, float, float]], data: st.DataObject) -> None:
    trace, replay = run(program)
    for edits in (edits_of(trace, data), [remove(np.arange(len(trace.events)))]):
        saving = replay.saving(*edits, how="")
        assert 0 <= saving.low_us <= saving.high_us <= replay.scale.step_us


@quick
@given(programs, st.data())
def test_two_edits_save_at_least_what_the_better_one_saves(
    program: list[tuple[str, float, float]], data: st.DataObject
) -> None:
    trace, replay = run(program)
    edits = [remove(chosen(trace, data, *HOST, *DEVICE)) for _ in range(2)]
    single = [replay.step_us - replay.step_after_us(edit) for edit in edits]
    together = replay.step_us - replay.step_after_us(*edits)
    assert together >= max(single) - replay.step_us * ROUNDING
