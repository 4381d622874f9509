"""A window in which the loop had no core is recorded again, and the calmest one is what stays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from capture_runs import capture
from recorder import Recorder

from advisor.capture.inside.steps import phases
from advisor.capture.inside.steps.phases import AFTER, Phases
from advisor.capture.inside.steps.plan import Plan
from advisor.capture.record import RankRecord, Vitals
from advisor.report.health import _waits

MS = 1_000_000
WARMUP, TIMED, STEPS = 2, 5, 4


def ran(
    monkeypatch: pytest.MonkeyPatch, waits: Sequence[float], ranks: int = 1, steps: int = 60, large: bool = False
) -> tuple[Phases, Recorder]:
    """Steps of 10 ms; waits: share of each window in which the loop has no core, in turn, then the last."""
    clock, queued, recorder = [0], [0.0], Recorder()
    recorder.large = large
    monkeypatch.setattr(phases, "perf_counter_ns", lambda: clock[0])
    plan = Plan(WARMUP, TIMED, STEPS, lines=True, ranks=ranks)
    machine = Phases(recorder, plan, queued_ns=lambda: int(queued[0]))
    for iteration in range(steps):
        clock[0] += 10 * MS
        queued[0] += waits[min(machine.windows, len(waits) - 1)] * 10 * MS
        machine.boundary(clock[0], True, True, iteration)
    return machine, recorder


def stops(recorder: Recorder) -> list[str]:
    """What became of each window of numbers: kept, or discarded."""
    role, found = "", []
    for word in recorder.log:
        role = word if word.startswith("start") else role
        if role == "start profile" and word.startswith(("stop", "discard")):
            found.append(word.split()[0])
    return found


def test_a_calm_window_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, recorder = ran(monkeypatch, [0.05])
    assert stops(recorder) == ["stop"]
    assert (machine.windows, machine.waited) == (1, pytest.approx(0.05))
    assert machine.phase == AFTER


def test_after_a_busy_window_a_calm_one_replaces_it(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, recorder = ran(monkeypatch, [0.5, 0.02])
    assert stops(recorder) == ["stop", "stop"]
    assert (machine.windows, machine.waited) == (2, pytest.approx(0.02))
    assert len(machine.profiled) == STEPS
    assert recorder.log.index("start lines") < max(
        at for at, word in enumerate(recorder.log) if word == "start profile"
    ), "lines come first: the script may end"


def test_the_calmest_of_three_stays_where_none_is_calm(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, recorder = ran(monkeypatch, [0.6, 0.3, 0.5])
    assert stops(recorder) == ["stop", "stop", "discard"]
    assert (machine.windows, machine.waited) == (3, pytest.approx(0.3))
    assert machine.phase == AFTER


@pytest.mark.parametrize("more", [{"ranks": 2}, {"large": True}])
def test_ranks_and_what_may_be_spent_allow_one_alone(monkeypatch: pytest.MonkeyPatch, more: dict[str, int]) -> None:
    machine, recorder = ran(monkeypatch, [0.5], **more)  # type: ignore[arg-type]
    assert machine.windows == 1
    assert stops(recorder) == ["stop"]


def test_a_script_that_ends_within_a_further_window_leaves_the_first_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    boundaries = WARMUP + TIMED + 1 + STEPS + 1 + 2  # and a step with lines
    machine, recorder = ran(monkeypatch, [0.5], steps=boundaries)
    first = dict(machine.kept[0]) if machine.kept else {}
    assert len(first) == STEPS
    assert machine.interrupt()
    assert stops(recorder) == ["stop", "discard"]
    assert machine.rows == first
    assert machine.phase == AFTER


def test_the_report_says_that_the_window_was_busy() -> None:
    (said,) = _waits(RankRecord(vitals=Vitals(windows=3, window_waited=0.45)))
    assert said.id == "busy-window"
    assert "waited 45 % of the least disturbed of 3 profiled windows" in said.message
    assert not list(_waits(RankRecord(vitals=Vitals(windows=2, window_waited=0.1))))


@pytest.mark.torch
@pytest.mark.complete
def test_a_busy_script_keeps_its_lines_and_one_window(tmp_path: Path) -> None:
    """The windows of a real script, each taken for a busy one: they replace each other, and nothing else."""
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(
        "import sys\nimport torch\n"
        "phases = [module for name, module in sys.modules.items() if name.endswith('.steps.phases')]\n"
        "for module in phases:\n    module.BUSY = -1.0\n"
        "model = torch.nn.Linear(8, 1)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(300):\n    optimizer.zero_grad()\n    model(torch.ones(4, 8)).sum().backward()\n"
        "    optimizer.step()\n",
        encoding="utf-8",
    )
    done = capture(tmp_path / "out", script)
    assert done.status == 0, done.err
    (rank,) = done.record["ranks"]
    assert {file["role"] for file in rank["files"]} == {"profile", "lines"}
    assert rank["vitals"]["windows"] == 3
    assert all((tmp_path / "out" / file["path"]).exists() for file in rank["files"])
    rows = {row["name"] for row in done.events() if row["name"].startswith("ProfilerStep#")}
    (profile,) = (file for file in rank["files"] if file["role"] == "profile")  # a late one comes second
    assert set(profile["steps"]) == rows
