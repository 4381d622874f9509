"""Loops in which one step in so many is far longer: one step of each kind has its lines recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from capture_runs import capture

from advisor.capture.inside.steps import phases as phases_module
from advisor.capture.inside.steps.periodic_steps import Pace, pace
from advisor.capture.inside.steps.phases import AFTER, LINES, Phases
from advisor.capture.inside.steps.plan import Plan

MS = 1_000_000


def times(first: int, count: int, every: int, place: int, usual: float = 5.0, long: float = 20.0) -> list[Any]:
    return [(n, (long if n % every == place else usual) * MS) for n in range(first, first + count)]


@pytest.mark.parametrize(("every", "place"), [(2, 0), (2, 1), (5, 3), (10, 9)])
def test_the_shortest_period_is_found(every: int, place: int) -> None:
    assert pace(times(3, 20, every, place), times(24, 20, every, place)) == Pace(every, place)


def test_each_phase_is_measured_by_itself() -> None:
    """Profiled steps are all slower than un-profiled ones, and none of them is long for that."""
    assert pace(times(0, 20, 50, 49), times(20, 20, 50, 49, usual=30)) is None
    assert pace(times(0, 20, 10, 9), times(20, 20, 10, 9, usual=30, long=60)) == Pace(10, 9)


@pytest.mark.parametrize("usual", [[5.0] * 40, [5.0, 6.5] * 20])
def test_steps_that_differ_by_little_have_no_pace(usual: list[float]) -> None:
    assert pace(list(enumerate(usual))) is None


def test_the_longest_of_two_sets_the_pace() -> None:
    """The step after a pause finds cold caches."""
    took = {3: 250.0, 0: 0.5}
    assert pace([(n, took.get(n % 4, 0.2) * MS) for n in range(2, 34)]) == Pace(4, 3)


def test_two_bursts_are_no_pace() -> None:
    assert pace([(n, 50.0 if n in (7, 19) else 5.0) for n in range(40)]) is None


def test_two_turns_are_a_pace_where_they_take_most_of_the_time() -> None:
    """An agent plays, and learns in sixteen steps; the phases before the lines step hold two of these."""
    before, recorded = times(4, 20, 16, 0, long=500.0), times(25, 18, 16, 0, long=500.0)
    assert pace(before, recorded) == Pace(16, 0)
    assert pace(times(4, 20, 16, 0, long=30.0), times(25, 18, 16, 0, long=30.0)) is None
    assert pace(before, times(25, 7, 16, 0)) is None  # one of them


def test_a_burst_beside_a_pace_does_not_hide_it() -> None:
    seen = [(n, 50.0 if n == 12 else took) for n, took in times(0, 40, 10, 9, 5.0 / MS, 20.0 / MS)]
    assert pace(seen) == Pace(10, 9)


class Recorder:
    """What the phases asked for, in order."""

    def __init__(self, observable: int = 0) -> None:
        self.said: list[Any] = []
        self.observable = observable

    def prepare(self) -> bool:
        return True

    def start(self, role: str) -> bool:
        self.said.append(role)
        return True

    def open(self, number: int) -> None:
        self.said.append(("open", number))

    def close(self) -> None:
        self.said.append("close")

    def stop(self, rows: dict[int, int], partial: bool) -> None:
        self.said.append(("stop", dict(rows), partial))

    def discard(self) -> None: ...

    def compiles(self) -> int:
        return 0

    def too_big(self) -> bool:
        return False

    def full(self) -> bool:
        return False

    def affords(self, steps: int) -> bool:
        return True

    def waits(self) -> bool:
        return False

    def due(self) -> str:
        return ""

    def mark(self) -> Any:
        return None

    def timed(self, steps: int) -> None: ...

    def finished(self) -> None:
        self.said.append("finished")

    def observe(self) -> int:
        return self.observable

    def observed(self, whole: bool) -> None:
        self.said.append(("observed", whole))


def ran(
    monkeypatch: pytest.MonkeyPatch, long: set[int], steps: int, ranks: int = 1, observable: int = 0
) -> tuple[Phases, Recorder]:
    """A loop of so many steps of 5 ms, with some of 20 ms, on a clock of its own."""
    clock = [0]
    monkeypatch.setattr(phases_module, "perf_counter_ns", lambda: clock[0])
    recorder = Recorder(observable)
    phases = Phases(recorder, Plan(3, 20, 20, True, ranks))
    for iteration in range(steps):
        clock[0] += 20 * MS if iteration in long else 5 * MS
        phases.boundary(clock[0], True, True, iteration)
    return phases, recorder


def recorded_lines(recorder: Recorder) -> list[Any]:
    """What was stopped after the lines session began."""
    return [one for one in recorder.said[recorder.said.index("lines") :] if isinstance(one, tuple) and one[0] == "stop"]


def test_a_usual_step_and_the_next_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    phases, recorder = ran(monkeypatch, set(range(9, 200, 10)), 60)
    [(_, rows, partial)] = recorded_lines(recorder)
    assert [n % 10 == 9 for n in rows.values()] == [False, True]
    assert not partial
    assert phases.phase == AFTER
    # Of the steps between them none is recorded, and what there was was written before the wait.
    opened = [one for one in recorder.said[recorder.said.index("lines") :] if isinstance(one, tuple)]
    assert len([one for one in opened if one[0] == "open"]) == 2
    assert "finished" in recorder.said[: recorder.said.index(("stop", rows, False))]


def test_after_a_long_step_the_usual_one_follows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _, recorder = ran(monkeypatch, set(range(0, 200, 4)), 60)
    [(_, rows, _)] = recorded_lines(recorder)
    assert list(rows.values()) == [44, 45]


def test_steps_of_one_kind_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    _, recorder = ran(monkeypatch, set(), 60)
    [(_, rows, _)] = recorded_lines(recorder)
    assert list(rows.values()) == [44]


def test_ranks_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    _, recorder = ran(monkeypatch, set(range(9, 200, 10)), 60, ranks=2)
    [(_, rows, _)] = recorded_lines(recorder)
    assert len(rows) == 1


def test_a_loop_that_ends_while_it_is_waited_for_keeps_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    phases, recorder = ran(monkeypatch, set(range(9, 200, 10)), 47)
    assert phases.phase == LINES
    assert phases.interrupt()
    assert recorded_lines(recorder) == [("stop", {0: 44}, False)]


def test_a_long_step_that_never_comes_costs_no_observed_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine made some steps long, in turns, and the script is a short one."""
    phases, recorder = ran(monkeypatch, {9, 19, 29, 39}, 47, observable=2)
    assert ("observed", True) in recorder.said
    assert phases.phase == LINES
    assert phases.interrupt()
    assert recorded_lines(recorder) == [("stop", {0: 44}, False)]
    assert recorder.said.count(("observed", True)) == 1


def test_the_long_step_is_recorded_after_those_that_are_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    phases, recorder = ran(monkeypatch, set(range(9, 200, 10)), 60, observable=2)
    [(_, rows, partial)] = recorded_lines(recorder)
    assert list(rows.values()) == [44, 49]
    assert not partial
    assert phases.phase == AFTER
    assert [one for one in recorder.said if isinstance(one, tuple) and one[0] == "observed"] == [("observed", True)]


def test_a_script_that_ends_while_it_is_observed_keeps_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    phases, recorder = ran(monkeypatch, {9, 19, 29, 39}, 46, observable=2)
    assert phases.interrupt()
    assert ("observed", False) in recorder.said
    assert recorded_lines(recorder) == [("stop", {0: 44}, False)]
    assert phases.phase == AFTER


SCRIPT = """
import time
import torch

model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(48):
    loss = model(torch.randn(32, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 4 == 3:
        time.sleep(0.25)
        loss.exp()
"""


@pytest.mark.complete
@pytest.mark.torch
def test_the_line_of_what_comes_every_fourth_step_is_recorded(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    done = capture(tmp_path / "out", script, steps=12, warmup=2)
    assert done.status == 0, done.err
    names = {row["name"].split("|")[2] for row in done.events("lines") if row["name"].startswith("advisor:line|")}
    rare = {str(SCRIPT.splitlines().index(line) + 1) for line in SCRIPT.splitlines() if line.startswith("        ")}
    assert rare <= names
    [file] = [one for one in done.rank["files"] if one["role"] == "lines"]
    assert len(file["steps"]) == 2
    assert not file["partial"]
