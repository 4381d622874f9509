"""What capture may cost: fewer steps, no lines, nothing observed where a step has too many ops; and it says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from capture_runs import Captured, capture

from advisor.capture.inside.guards import hooks
from advisor.capture.inside.windows.budget import FIXED_S, SHARE, SLOWNESS, Budget, Growth, allocated_bytes
from advisor.capture.inside.windows.costs import Costs

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Clock:
    """CPU time of a process, as a test sets it."""

    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


def test_what_is_left_grows_with_the_script_and_shrinks_with_us() -> None:
    """The script's own time counts, ours does not; what is written is paid for by the report."""
    clock = Clock()
    budget = Budget(1, clock)
    at_first = budget.left_s()
    assert 0 < at_first < FIXED_S
    clock.s = 10.0
    assert budget.left_s() == pytest.approx(at_first + SHARE * 10)
    with budget.spending():
        clock.s = 12.0
    assert budget.spent_s == 2.0
    assert budget.left_s() == pytest.approx(at_first + SHARE * 10 - 2)
    budget.written(100_000, 1.2)
    assert budget.left_s() == pytest.approx(at_first + SHARE * 10 - 2 - 0.25)


def test_rows_cost_what_the_first_window_took() -> None:
    """12 µs for each of its rows; a small window says nothing."""
    budget = Budget(1, Clock())
    before = budget.rows_s(100_000)
    budget.written(100, 5.0)
    assert budget.rows_s(100_000) == before
    budget.written(100_000, 1.2)
    assert budget.rows_s(100_000) == pytest.approx(1.2 + 0.25)


def test_a_slow_machine_takes_longer_for_what_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report and its rows take twice the time there; rows of windows what the first one took. At least nothing."""
    quick, slow = Budget(1, Clock()), Budget(1, Clock())
    quick.gauge(0.0001)
    slow.gauge(0.003)
    assert quick.left_s() == Budget(1, Clock()).left_s()
    assert FIXED_S - slow.left_s() == pytest.approx(2 * (FIXED_S - quick.left_s()))
    assert slow.observing_s(1000) == pytest.approx(2 * quick.observing_s(1000))
    for budget in (quick, slow):
        budget.written(100_000, 1.2)
    assert (quick.owed_s, slow.owed_s) == pytest.approx((0.25, 0.5))
    slow.owed_s = 0.0
    slow.gauge(1.0)
    assert slow.left_s() == 0.0
    monkeypatch.delenv(SLOWNESS, raising=False)
    slow.gauge()
    assert 1.0 <= slow.slowness < 100
    monkeypatch.setenv(SLOWNESS, "3.5")
    slow.gauge()
    assert slow.slowness == 3.5


def test_ranks_share_what_there_is() -> None:
    """Of 5 s on one machine each of four ranks has a quarter."""
    alone, one_of_four = (Budget(ranks, Clock()).left_s() for ranks in (1, 4))
    assert one_of_four == pytest.approx(alone / 4)


class Grown(Growth):
    """What a step holds that recorded so many rows in so much CPU time."""

    def __init__(self, rows: float, took_s: float) -> None:
        super().__init__()
        self.held, self.took_s = rows, took_s

    def rows(self, steps: int, place: str = "") -> float:
        return self.held

    def most_rows(self) -> float:
        return self.took_s * 1e6


@pytest.mark.parametrize("took_s", [0.12, 1.2])
def test_a_fast_forward_pass_fills_the_window_as_a_slow_one_does(took_s: float) -> None:
    """120,000 rows in 0.12 s: with the backward pass they would cost 6.7 s of the 3.4 that are left."""
    costs = Costs()
    costs.budget, costs.growth = Budget(1, Clock()), Grown(120_000, took_s)
    assert costs.overflows("backward")
    assert not costs.overflows("fetched")
    costs.growth = Grown(20_000, took_s)
    assert not costs.overflows("backward")


@pytest.mark.complete
@pytest.mark.skipif(not allocated_bytes(), reason="needs a system that says how much memory is in use")
def test_rows_are_told_from_the_memory_that_they_take(tmp_path: Path) -> None:
    """Of 20,000 indexed writes: about as many as the trace has. Memory that the script takes is deducted."""
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True)
    table, kept = torch.zeros(200, 100), []
    growth = Growth()
    growth.timing()
    for _ in range(4):
        kept.append(bytearray(1 << 20))
    growth.timing_ends(4)
    profiler.start()
    growth.start()
    for _ in range(2):
        kept.append(bytearray(1 << 20))
        for row in range(100):
            for column in range(100):
                table[row, column] = 1.0
    found = growth.rows(2)
    profiler.stop()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    rows = sum(one["ph"] == "X" for one in json.loads((tmp_path / "trace.json").read_text())["traceEvents"])
    assert rows > 60_000
    assert found == pytest.approx(rows, rel=0.25)


def test_a_pass_that_begins_is_told_from_one_that_runs() -> None:
    """One pass on the stack runs, unless it is the one that begins; outside of passes there is none."""
    seen = []
    number = torch.ones((), requires_grad=True)
    number.register_hook(lambda _: seen.append((hooks.inside_backward(), hooks.inside_backward(beginning=True))))
    (number * 2).backward()
    torch.autograd.grad(number * 2, number)

    def ask() -> None:
        seen.append((hooks.inside_backward(), hooks.inside_backward(beginning=True)))

    # A frame as the engine is called from: its function's name, in a file of autograd.
    code = compile("def backward(call): call()", torch.autograd.__file__, "exec")
    names: dict[str, Any] = {}
    exec(code, names)
    names["backward"](ask)
    ask()
    assert seen == [(True, False), (True, False), (True, False), (False, False)]


SCRIPT = """
import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
table = torch.zeros(5)
for step, (batch,) in enumerate(DataLoader(TensorDataset(torch.zeros(30, 8)), batch_size=1)):
    for place in range(WRITES if FIRST <= step < LAST else 5):
        table[place] = 1.0
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
print("over")
"""


def captured(folder: Path, writes: int, first: int, last: int) -> Captured:
    """The script, with so many writes in some of its steps."""
    script = folder / "many.py"
    words = {"WRITES": writes, "FIRST": first, "LAST": last}
    text = SCRIPT
    for word, number in words.items():
        text = text.replace(word, str(number))
    script.write_text(text.replace("zeros(5)", f"zeros({writes})"))
    done = capture(folder / "out", script)
    assert (done.status, done.out, done.err) == (0, "over\n", "")
    return done


@pytest.mark.complete
def test_a_step_of_very_many_ops_costs_a_bounded_number_of_rows(tmp_path: Path) -> None:
    """One step instead of several; nothing is observed; what is left out is said; sizes are bounded."""
    done = captured(tmp_path, 22_000, 0, 99)
    steps = done.rank["steps"]["profiled_us"]
    rows = sum(one.get("ph") == "X" for one in done.events())
    assert len(steps) in (1, 2, 3)
    assert 60_000 < rows < 330_000  # a step has 66,000
    assert not any(file["partial"] for file in done.rank["files"])
    said = " | ".join(done.rank["notes"])
    assert f"the window was closed after {len(steps)} step" in said
    assert "what ops read was not observed" in said
    # A busy machine fills the window with lines inside of its step; then nothing is left to weigh.
    why = done.rank["dataflow"]["why"]
    said = ("observing what they read takes", "are observed", "a step runs more ops than the limit")
    assert any(words in why for words in said)
    assert (done.folder / "run.json").stat().st_size < 100_000


ACTIVATIONS = """
import torch
from torch.utils.data import DataLoader
weight = torch.nn.Parameter(torch.ones(1 << 20))
optimizer = torch.optim.SGD([weight], lr=0.01)
for _ in DataLoader(torch.zeros(40, 1)):
    x = weight
    for layer in range(60):
        x = torch.tanh(x)
    optimizer.zero_grad()
    x.sum().backward()
    optimizer.step()
"""


@pytest.mark.complete
def test_activations_are_no_rows(tmp_path: Path) -> None:
    """A few ops that keep 240 MB for their backward pass: as much as 480,000 rows, but there are some hundred."""
    script = tmp_path / "large.py"
    script.write_text(ACTIVATIONS)
    done = capture(tmp_path / "out", script)
    assert done.rank["notes"] == []
    assert not any(file["partial"] for file in done.rank["files"])


LOOPS = """
import torch

table = torch.zeros(40, requires_grad=True)
optimizer = torch.optim.SGD([table], lr=0.01)
for step in range(400):
    best = table.sum()
    for place in range(300):
        best = best * 0.5 + table[place % 40]
    optimizer.zero_grad()
    best.backward()
    optimizer.step()
print("over")
"""


@pytest.mark.complete
def test_loops_over_small_ops_keep_their_lines(tmp_path: Path) -> None:
    """One window does not use up what lines cost; without a loader, a step's rows begin at its boundary.

    Where a row takes thrice as long as it was measured to (an EPYC), they are recorded after some hundred steps more.
    """
    (tmp_path / "loops.py").write_text(LOOPS)
    done = capture(tmp_path / "out", tmp_path / "loops.py")
    profile, lines = done.rank["files"]
    assert (profile["role"], lines["role"]) == ("profile", "lines")
    assert not profile["partial"]
    assert len(profile["steps"]) >= 3
    assert not any("within a step" in note for note in done.rank["notes"])


@pytest.mark.complete
def test_a_window_ends_inside_of_a_step_that_fills_it(tmp_path: Path) -> None:
    """400,000 rows before the backward pass of the first profiled step: its window holds no whole step."""
    done = captured(tmp_path, 130_000, 14, 22)
    assert any("a window was closed within a step" in note for note in done.rank["notes"])
    [file] = done.rank["files"]
    assert (file["steps"], file["partial"]) == ({}, True)
    assert done.rank["steps"]["count"] == 30


@pytest.mark.complete
def test_scripts_of_a_usual_size_are_recorded_whole(tmp_path: Path) -> None:
    """300 writes a step: all steps, lines, observed steps, and not a word."""
    done = captured(tmp_path, 300, 0, 99)
    assert done.rank["notes"] == []
    assert len(done.rank["steps"]["profiled_us"]) >= 5
    assert {file["role"] for file in done.rank["files"]} == {"profile", "lines"}
    if "this torch" not in done.rank["dataflow"].get("why", ""):
        assert (done.folder / done.rank["dataflow"]["file"]).exists()
