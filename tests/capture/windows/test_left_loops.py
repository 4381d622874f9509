"""What a window does when training moves to another loop: it never holds steps of both."""

from __future__ import annotations

import pytest
from recorder import Recorder

from advisor.capture.inside.steps.phases import AFTER, DONE, LINES, OBSERVED, RECORD, TIMING, WARM, Phases
from advisor.capture.inside.steps.plan import Plan

MS = 10**6
OTHER = Plan(2, 4, 3, lines=True)


class Script:
    """Boundaries of two loops, one after the other: in the first a step takes 5 ms, in the second 40."""

    def __init__(self, ranks: int = 1, observes: int = 0) -> None:
        self.recorder = Recorder()
        self.recorder.observes = observes
        self.phases = Phases(self.recorder, Plan(1, 6, 5, lines=True, ranks=ranks))
        self.now_ns = self.count = 0

    def step(self, count: int, length_ns: int = 5 * MS) -> Script:
        for _ in range(count):
            self.now_ns += length_ns
            self.phases.boundary(self.now_ns, True, True, self.count)
            self.count += 1
        return self

    def leave(self, plan: Plan | None = OTHER) -> Script:
        """The boundary at the end of the step that lies in both."""
        self.now_ns += 40 * MS
        self.phases.leaves(plan)
        self.phases.boundary(self.now_ns, True, False, self.count)
        self.count += 1
        return self

    def times_ms(self) -> list[float]:
        return [(end - start) / MS for start, end in (*self.phases.before, *self.phases.after)]


@pytest.mark.parametrize("steps", [0, 3, 7, 8, 10])
def test_a_loop_that_ends_before_its_window_is_recorded_nowhere(steps: int) -> None:
    """In warm-up, in the timed steps, with the profiler prepared, and with two of five steps in the window."""
    script = Script().step(steps).leave().step(30, 40 * MS)
    assert set(script.times_ms()) == {40.0}
    profiled = next(line for line in script.recorder.log if line.startswith("stop {"))
    assert profiled.endswith("False")
    assert len(script.phases.kept[0] if script.phases.kept else ()) == 3
    assert min(script.phases.kept[0].values() if script.phases.kept else ()) > steps
    assert script.recorder.log.count("start profile") == 1 + (steps >= 8)


def test_steps_after_a_window_count_until_the_loop_is_left() -> None:
    script = Script().step(30)
    assert script.phases.phase == AFTER
    known = len(script.phases.after)
    script.leave().step(30, 40 * MS)
    assert (len(script.phases.after), set(script.times_ms())) == (known, {5.0})
    assert script.phases.phase == DONE


def test_enough_steps_are_a_whole_window_and_lines_of_another_loop_are_not_its() -> None:
    script = Script()
    script.phases.plan.steps = 9
    script.step(8 + 5)
    assert script.phases.phase == RECORD
    script.leave().step(20, 40 * MS)
    (stopped,) = [line for line in script.recorder.log if line.startswith("stop")]
    assert stopped.endswith("False"), "five whole steps are no window that ended early"
    assert "start lines" not in script.recorder.log
    assert set(script.times_ms()) == {5.0}


@pytest.mark.parametrize(("observes", "phase"), [(0, LINES), (2, OBSERVED)])
def test_steps_of_another_loop_are_neither_observed_nor_recorded_with_lines(observes: int, phase: int) -> None:
    script = Script(observes=observes).step(8 + 5 + (phase == OBSERVED))
    assert script.phases.phase == phase
    script.leave()
    assert script.phases.phase == DONE
    assert (script.recorder.log[-2].startswith("observed False") or "True" in script.recorder.log[-2]) is True


def test_a_window_at_a_chosen_step_stays_there_and_has_steps_of_one_loop() -> None:
    script = Script().step(5).leave(None).step(1, 40 * MS)
    assert script.phases.phase == TIMING
    assert set(script.times_ms()) == {40.0}
    script.step(2, 40 * MS)
    assert script.phases.phase == RECORD, "six steps are over, whatever loop they were in"


def test_ranks_go_on_with_the_window_that_all_of_them_record() -> None:
    script = Script(ranks=2).step(8 + 2).leave(None)
    assert script.phases.phase == RECORD
    assert len(script.phases.rows) == 2
    script.step(3, 40 * MS)
    assert len(script.phases.kept[0] if script.phases.kept else ()) == 5


def test_a_new_plan_begins_with_its_own_warm_up() -> None:
    script = Script().step(4).leave(Plan(5, 4, 3, lines=True))
    assert (script.phases.phase, script.phases.left) == (WARM, 4)
