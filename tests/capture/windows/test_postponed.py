"""Lines and observed steps that could not be recorded in their turn: recorded later, or said at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from capture_runs import Captured, capture
from recorder import Recorder
from tiers import complete

from advisor.capture.inside.steps import phases
from advisor.capture.inside.steps.phases import AFTER, DONE, LINES, MOST_TIMES, OBSERVED, Phases
from advisor.capture.inside.steps.plan import Plan

STEPS = 3


def machine(recorder: Recorder, ranks: int = 1) -> Phases:
    """Behind its window, with its first settling steps over."""
    made = Phases(recorder, Plan(1, 2, STEPS, lines=False, ranks=ranks))
    pass_steps(made, 12)
    assert made.phase == AFTER
    return made


def pass_steps(made: Phases, count: int, clean: bool = True) -> None:
    for _ in range(count):
        made.boundary(0, True, clean, 0)


def test_observed_steps_begin_once_they_can_be_afforded() -> None:
    recorder = Recorder()
    made = machine(recorder)
    recorder.postponed = "observed"
    assert not made.at_length(0)
    pass_steps(made, 10)
    assert made.phase == AFTER
    recorder.affordable, recorder.observes = True, 2
    assert made.at_length(0)
    pass_steps(made, 1, clean=False)
    assert made.phase == AFTER, "behind an epoch's last step comes an evaluation"
    pass_steps(made, 1)
    assert made.phase == OBSERVED
    recorder.postponed = ""
    pass_steps(made, 2)
    assert made.phase == AFTER
    assert recorder.log[-2:] == ["observed True", "finished"]


def test_lines_are_recorded_later_too() -> None:
    recorder = Recorder()
    made = machine(recorder)
    made.plan.lines = True
    recorder.postponed, recorder.affordable = "lines", True
    pass_steps(made, 1)
    assert made.phase == LINES
    recorder.postponed = ""
    pass_steps(made, 1)
    assert made.phase == AFTER
    assert "start lines" in recorder.log


def test_ranks_of_a_job_make_up_for_nothing() -> None:
    recorder = Recorder()
    made = machine(recorder, ranks=2)
    recorder.postponed, recorder.affordable, recorder.observes = "observed", True, 2
    pass_steps(made, MOST_TIMES + 10)
    assert made.phase == DONE


def test_step_times_are_complete_while_something_waits() -> None:
    recorder = Recorder()
    made = machine(recorder)
    recorder.postponed = "observed"
    pass_steps(made, MOST_TIMES + 50)
    assert made.phase == AFTER
    assert len(made.before) + len(made.after) == MOST_TIMES
    recorder.affordable, recorder.observes = True, 1
    pass_steps(made, 1)
    assert made.phase == OBSERVED
    recorder.postponed = ""
    pass_steps(made, phases._SETTLE + 1)
    assert made.phase == DONE


def window_in(folder: Path) -> Any:
    """The real recorder, with lines open in which a step has 9,000 rows so far."""
    pytest.importorskip("torch")
    from advisor.capture.inside.steps.clock import Clock
    from advisor.capture.inside.windows.window import Window

    window = Window({"folder": str(folder)}, lambda role: str(folder / role), Clock(lambda: "cpu"))
    window.role, window.costs.rows_per_step = "lines", 100.0
    window.costs.growth.rows = lambda *_: 9000.0  # type: ignore[method-assign]
    return window


@pytest.mark.torch
def test_a_step_that_fills_the_window_with_lines_is_tried_again_and_at_last_said(tmp_path: Path) -> None:
    window = window_in(tmp_path)
    for _ in range(2):
        window.overflowed()
        assert window.notes == []
        assert list(window.costs.postponed) == ["lines", "observed"] or list(window.costs.postponed) == ["lines"]
    assert window.costs.rows_per_step == pytest.approx(2 * 9000 / 1.5)
    window.costs.postponed.clear()
    window.overflowed()
    assert not window.waits()
    assert any("closed within a step" in note for note in window.notes)


@pytest.mark.torch
def test_what_is_due_is_what_can_be_afforded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    window = window_in(tmp_path)
    window.overflowed()
    monkeypatch.setattr(window.costs.budget, "left_s", lambda: 0.1)
    assert window.due() == ""
    monkeypatch.setattr(window.costs.budget, "left_s", lambda: 0.5)
    assert window.due() == "lines"
    assert window.start("lines")  # which takes it off the list
    window.stop({}, True)
    assert window.due() == ""
    monkeypatch.setattr(window.costs.budget, "left_s", lambda: 2.0)
    assert window.due() == "observed"


SHORT_EPOCHS = """
import torch
from torch.utils.data import DataLoader

weight = torch.nn.Parameter(torch.zeros(4))
optimizer = torch.optim.SGD([weight], lr=0.01)
for epoch in range(6):
    for batch in DataLoader(torch.ones(20, 4), batch_size=2):
        optimizer.zero_grad()
        (weight * batch).sum().backward()
        optimizer.step()
    for batch in DataLoader(torch.ones(8, 4), batch_size=2):
        (weight.detach() * batch).sum()
"""

SMALL_OPS = """
import time
import torch

table = torch.zeros(40, requires_grad=True)
optimizer = torch.optim.SGD([table], lr=0.01)
for step in range(STEPS):
    best = table.sum()
    for place in range(OPS if step < 40 else 40):
        best = best * 0.5 + table[place % 40]
    optimizer.zero_grad()
    best.backward()
    optimizer.step()
    end = time.process_time() + 0.15 * (step > 45)
    while time.process_time() < end:
        pass
"""


def captured(folder: Path, text: str) -> Captured:
    (folder / "train.py").write_text(text)
    done = capture(folder / "out", folder / "train.py")
    assert done.status == 0, done.err
    return done


@pytest.mark.complete
@pytest.mark.torch
def test_observed_steps_that_an_epoch_cut_short_are_observed_in_the_next(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = captured(tmp_path, SHORT_EPOCHS)
    assert done.rank["dataflow"].get("file"), done.rank["dataflow"]
    assert done.rank["notes"] == []


@pytest.mark.complete
@pytest.mark.torch
@pytest.mark.parametrize(("steps", "observed"), [(45, False), *complete((160, True))])
def test_what_a_long_run_can_afford_is_recorded_after_all(tmp_path: Path, steps: int, observed: bool) -> None:
    """10,000 ops a step and half a second of the script's own time by then; minutes later there is more to spend."""
    pytest.importorskip("torch")
    done = captured(tmp_path, SMALL_OPS.replace("STEPS", str(steps)).replace("OPS", "1000"))
    notes = " | ".join(done.rank["notes"])
    assert ("was not observed" in notes) == (not observed), notes
    assert bool(done.rank["dataflow"].get("file")) == observed
