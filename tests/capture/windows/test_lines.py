"""The lines of the user's code: each op, each `.item()`, each gap without an op has its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from capture_runs import Captured, capture
from tiers import complete

from advisor.capture.inside.windows.inlined import comprehensions

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SCRIPT = """import time
import torch
from torch.utils.data import DataLoader
import helper

torch.set_num_threads(1)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train(loader):
    for batch in loader:
        loss = model(batch).pow(2).mean()  # forward
        loss.backward()  # backward
        optimizer.step()  # optimizer
        first = loss.item()  # item one
        second = loss.exp().item()  # item two
        time.sleep(0.02)  # gap
        helper.collate([first, second])  # helped
        [row.erf() for row in batch]  # turns


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, index):
        return torch.full((8,), float(index))  # sample


train(DataLoader(Samples(), batch_size=2))
print("trained")
"""
HELPER = "import torch\n\n\ndef collate(values):\n    return torch.tensor(values * 50)  # tensor\n"


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    folder = tmp_path_factory.mktemp("lines")
    (folder / "train.py").write_text(SCRIPT)
    (folder / "helper.py").write_text(HELPER)
    return capture(folder / "out", "train.py", cwd=folder, steps=3, warmup=2)


def line_of(comment: str, text: str = SCRIPT) -> int:
    return next(number for number, line in enumerate(text.splitlines(), start=1) if f"# {comment}" in line)


def innermost(done: Captured, row: dict[str, Any]) -> tuple[str, int, str]:
    """File, line and function of the smallest line range that holds the row's start."""
    ranges = [one for one in done.events("lines") if one["name"].startswith("advisor:line|")]
    around = [one for one in ranges if one["ts"] <= row["ts"] < one["ts"] + one["dur"]]
    _, file, line, function = min(around, key=lambda one: one["dur"])["name"].split("|")
    return file, int(line), function


def first_step(done: Captured) -> list[dict[str, Any]]:
    """On a busy machine steps may be of two kinds, and what comes until the other is recorded with lines, too."""
    step = done.step_rows("lines")[0]
    return [row for row in done.events("lines") if step["ts"] <= row["ts"] < step["ts"] + step["dur"]]


def ops(done: Captured, name: str) -> list[dict[str, Any]]:
    return [row for row in first_step(done) if row["name"] == name and row["cat"] == "cpu_op"]


def test_every_op_has_the_line_that_called_it(done: Captured) -> None:
    for op, comment in (("aten::linear", "forward"), ("aten::exp", "item two")):
        assert {innermost(done, row) for row in ops(done, op)} == {("train.py", line_of(comment), "train")}
    (backward,) = ops(done, "MeanBackward0")
    assert innermost(done, backward)[1] == line_of("backward")
    samples = {innermost(done, row) for row in ops(done, "aten::full")}
    assert samples == {("train.py", line_of("sample"), "__getitem__")}


def test_two_items_in_one_function_have_two_lines(done: Captured) -> None:
    items = [innermost(done, row) for row in ops(done, "aten::item")]
    assert items == [("train.py", line_of("item one"), "train"), ("train.py", line_of("item two"), "train")]


def test_a_gap_without_an_op_has_its_line(done: Captured) -> None:
    """20 ms of sleep: the longest innermost range of the step."""
    name = f"advisor:line|train.py|{line_of('gap')}|train"
    (gap,) = [row for row in first_step(done) if row["name"] == name]
    assert gap["dur"] >= 20_000
    inside = [row for row in done.events("lines") if gap["ts"] < row["ts"] < gap["ts"] + gap["dur"]]
    assert [row for row in inside if row["cat"] == "cpu_op"] == []


def test_imported_modules_of_the_user_are_the_users(done: Captured) -> None:
    (file, line, function) = next(iter({innermost(done, row) for row in ops(done, "aten::lift_fresh")}))
    assert (file, line, function) == ("helper.py", line_of("tensor", HELPER), "collate")
    assert done.rank["user_files"] == ["helper.py", "train.py"]
    called = {row["name"] for row in done.events("lines") if row["name"].startswith("advisor:call|")}
    assert "advisor:call|torch._tensor.Tensor.backward" in called


def test_numbers_come_from_a_window_without_line_ranges(done: Captured) -> None:
    """The main trace holds no range of ours, and the lines trace holds steps that the main one does not."""
    assert not [row for row in done.events() if row["name"].startswith("advisor:")]
    steps = {row["name"] for row in done.step_rows("lines")}
    assert steps
    assert not steps & {row["name"] for row in done.step_rows()}
    assert done.out == "trained\n"


@pytest.mark.complete
def test_a_debugger_or_coverage_keeps_its_trace_function(tmp_path: Path) -> None:
    """Another tool traces: its events go on, the main trace is whole, lines are left out and that is said."""
    (tmp_path / "helper.py").write_text(HELPER)
    (tmp_path / "traced.py").write_text(
        "import sys\nseen = []\ndef tracer(frame, event, arg):\n    seen.append(event)\n    return None\n"
        "sys.settrace(tracer)\n" + SCRIPT + "\nassert sys.gettrace() is tracer\nprint(len(seen) > 100)\n"
    )
    done = capture(tmp_path / "out", "traced.py", cwd=tmp_path, steps=3, warmup=2)
    assert (done.status, done.out) == (0, "trained\nTrue\n"), done.err
    assert len(done.step_rows()) == 3
    assert any("traces this thread" in note for note in done.rank["notes"])


@pytest.mark.complete
def test_failures_of_the_lines_step_cost_only_lines(tmp_path: Path) -> None:
    """A lines step that ends in an exception, and one with more lines than the cap."""
    script = tmp_path / "busy.py"
    script.write_text(
        "import torch\ntorch.set_num_threads(1)\nmodel = torch.nn.Linear(8, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "def pixels():\n    total = 0\n    for number in range(40000):\n        total += number\n        total -= 1\n"
        "for number in range(40):\n    model(torch.ones(2, 8)).sum().backward()\n    optimizer.step()\n    pixels()\n"
    )
    done = capture(tmp_path / "out", "busy.py", cwd=tmp_path, steps=2, warmup=2)
    assert done.status == 0, done.err
    assert len(done.step_rows()) == 2
    lines = [row for row in done.events("lines") if row["name"].startswith("advisor:line|")]
    assert 10_000 < len(lines) <= 50_100
    assert any("more than" in note for note in done.rank["notes"])


def test_turns_of_a_comprehension_are_told_from_runs_of_its_line(done: Captured) -> None:
    """Whether the interpreter runs it in a frame of its own (until Python 3.11) or in the function's."""
    found = {innermost(done, row) for row in ops(done, "aten::erf")}
    assert found == {("train.py", line_of("turns"), "<listcomp>")}
    outer = [one for one in first_step(done) if one["name"] == f"advisor:line|train.py|{line_of('turns')}|train"]
    assert len(outer) == 1


TURNING = """def turning(a, b):
    [x + 1 for x in a]
    {x for x in a}
    {x: 1 for x in a}
    [*a, b]
    list(x for x in a)
    for x in a: x.append(b)
    return [
        x + 1
        for x in a
    ]
"""


def test_lines_on_which_comprehensions_turn() -> None:
    names: dict[str, Any] = {}
    exec(TURNING, names)
    inlined = {2: "<listcomp>", 3: "<setcomp>", 4: "<dictcomp>", 9: "<listcomp>"}
    assert comprehensions(names["turning"].__code__) == (inlined if sys.version_info >= (3, 12) else {})


ON_ONE_LINE = """def prepare(numbers):
    scaled = [number / 3 for number in range(numbers)]
    while numbers: numbers -= 1
    return scaled
"""


def test_turns_on_one_line_leave_room_for_other_lines() -> None:
    """They write nothing: a batch whose samples are lists of numbers is recorded to its end."""
    from advisor.capture.inside.windows.lines import LineRecorder

    names: dict[str, Any] = {}
    exec(compile(ON_ONE_LINE, __file__, "exec"), names)
    recorder = LineRecorder({})
    recorder.start()
    try:
        scaled = names["prepare"](120_000)
    finally:
        recorder.stop()
    assert len(scaled) == 120_000
    assert not recorder.cut
    assert recorder.entered < 20


def test_a_loop_on_one_line_is_not_told_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    from advisor.capture.inside.windows import lines

    monkeypatch.setattr(lines, "_MOST_EVENTS", 1000)
    names: dict[str, Any] = {}
    exec(compile(ON_ONE_LINE, __file__, "exec"), names)
    recorder = lines.LineRecorder({})
    recorder.start()
    try:
        names["prepare"](5000)
    finally:
        recorder.stop()
    assert recorder.cut
    assert recorder.events == 1001


MANY_LINES = """
import torch

weight = torch.nn.Parameter(torch.zeros(4))
optimizer = torch.optim.SGD([weight], lr=0.01)


def counted(total):
    for value in range(8_000):
        total += value
        total -= 1
        total += 1
        total %= 1_000
    return total


for step in range(40):
    optimizer.zero_grad()
    (weight.sum() + counted(0) + counted(1)).backward()
    optimizer.step()
"""


@complete
def test_a_step_of_more_lines_than_are_recorded_says_so_and_names_its_function(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(MANY_LINES)
    captured = capture(tmp_path / "run", script)
    (rank,) = captured.record.ranks
    assert [file.cut for file in rank.files if file.role == "lines"] == [True]
    assert any("ran more than" in note for note in rank.notes)
    out = tmp_path / "report.json"
    words = ("analyze", "--quiet", "--output", str(out), str(tmp_path / "run"))
    subprocess.run([sys.executable, "-m", "advisor", *words], check=True, timeout=120)
    (finding,) = next(one["findings"] for one in json.loads(out.read_text())["outcomes"] if one["rule"] == "host-work")
    assert "`counted`" in finding["message"]
