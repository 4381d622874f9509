"""The whole run on one clock: stretches and samples, by hand and on real scripts."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import msgspec
import pytest
from capture_runs import Captured, capture

from advisor.analyses.base.watched_run import WatchedRun
from advisor.capture.record import RankRecord
from advisor.computed import Computed

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

FEWEST_SAMPLES = 40
SCRIPT = """import sys, time, torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
kind = sys.argv[1]
def loader(n): return DataLoader(TensorDataset(torch.randn(n, 64), torch.randn(n, 1)), batch_size=16)
def evaluate(model, batches):
    model.eval()
    with torch.no_grad():
        for x, y in batches:
            time.sleep(0.02)
            model(x)
    model.train()
def pause():
    time.sleep(0.12)
model = torch.nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
train, val, number, spent = loader(16 * 80), loader(16 * 6), 0, 0.0
began = time.perf_counter()
for epoch in range(3):
    for x, y in train:
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        time.sleep(0.005)
        optimizer.step()
        number += 1
        at = time.perf_counter()
        if number % 20 == 0 and kind == "evaluation":
            evaluate(model, val)
        if number % 20 == 0 and kind == "other":
            pause()
        spent += time.perf_counter() - at
    at = time.perf_counter()
    if kind == "epoch":
        pause(); pause()
    if kind == "inline":
        model.eval()
        for x, y in val:
            with torch.no_grad():
                model(x)
            time.sleep(0.05)
        model.train()
    spent += time.perf_counter() - at
if kind == "broken":
    raise ValueError("the script's own")
print(spent, time.perf_counter() - began)
"""


def line_of(text: str) -> int:
    return 1 + next(i for i, line in enumerate(SCRIPT.splitlines()) if line.strip().startswith(text))


def run(folder: Path, kind: str, **options: object) -> tuple[Captured, WatchedRun]:
    script = folder / "train.py"
    script.write_text(SCRIPT)
    done = capture(folder / "out", script, kind, cwd=folder, **options)
    return done, Computed(record=msgspec.convert(done.rank, RankRecord)).get(WatchedRun)


@pytest.mark.parametrize(
    ("kind", "part", "statement"),
    [
        ("evaluation", "evaluation", "evaluate(model, val)"),
        pytest.param("other", "other", "pause()", marks=pytest.mark.complete),
        pytest.param("epoch", "epoch_end", "pause(); pause()", marks=pytest.mark.complete),
        pytest.param("inline", "evaluation", "for x, y in val", marks=pytest.mark.complete),
    ],
)
def test_what_lies_between_steps_is_found_with_its_line(tmp_path: Path, kind: str, part: str, statement: str) -> None:
    """The script sleeps there for more than a second in all, in two epochs and in what is not profiled for 0.3 s."""
    done, watched = run(tmp_path, kind)
    assert done.status == 0, done.err
    spent, _ = map(float, done.out.split())
    samples = sum(one["hits"] for one in done.rank["run"]["samples"])
    if part not in watched.loop and samples < FEWEST_SAMPLES:
        pytest.skip(f"{samples} samples on a busy machine, of which none fell between the steps: 60 to 77 else")
    others = {name: one.us / 1e6 for name, one in watched.loop.items() if name != "training"}
    most = watched.loop[max(others, key=lambda name: others[name])]
    unsure_us = 2 * (most.error_us + watched.loop[part].error_us)
    if most.id != part and most.us - watched.loop[part].us < unsure_us:
        pytest.skip("on a busy machine samples are few: they do not tell which part is larger")
    assert most.id == part
    assert 0.2 < others[part] <= spent + 0.1 * watched.loop_us / 1e6
    if not watched.loop[part].lines:
        pytest.skip("no sample fell between the steps: on a busy machine samples are dearer, and so rarer")
    # Of a loop its statement, or, where every sample fell on one line of it, that line: here where it sleeps.
    within = {0, 3} if kind == "inline" else {0}
    assert watched.loop[part].lines[0].source.line - line_of(statement) in within
    # By the budget of samples: ten milliseconds, a thousandth of the run, and one more sample on a busy machine.
    assert done.rank["run"]["sampling_us"] < 60_000 + 0.001 * watched.account.us


RESTARTS = """import time, torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
model = torch.nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(torch.randn(960, 64)), batch_size=16, num_workers=2)
made = first = 0.0
for epoch in range(6):
    at = time.perf_counter()
    batches = iter(loader)
    then = time.perf_counter()
    (x,) = next(batches)
    if epoch:
        made, first = made + then - at, first + time.perf_counter() - then
    for (x,) in [(x,), *batches]:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
print(made, first)
"""


def test_workers_that_start_again_are_timed_as_the_scripts_own_clock_does(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(RESTARTS)
    done = capture(tmp_path / "out", script, cwd=tmp_path)
    made_s, first_s = map(float, done.out.split()[-2:])
    assert done.rank["run"]["restarts"] == 5
    started_us, first_us = done.rank["run"]["workers_us"], done.rank["run"]["first_batches_us"]
    # Both lie within what the script sees; a busy machine may hold it up between the two clocks.
    assert first_us <= first_s * 1e6
    assert 0.5e6 * (made_s + first_s) < started_us + first_us < 1e6 * (made_s + first_s)
    assert started_us > 0.25e6 * made_s


@pytest.mark.complete
def test_a_script_that_fails_leaves_its_account(tmp_path: Path) -> None:
    done, watched = run(tmp_path, "broken")
    assert done.status == 1
    assert watched.steps > 100  # 240 less what the profiler saw, more of which there are on a slow machine
    assert watched.share("training") > 0.8


@pytest.mark.complete
def test_a_script_that_is_stopped_after_its_profile_is_accounted_for_so_far(tmp_path: Path) -> None:
    _, watched = run(tmp_path, "evaluation", stop=True)
    assert 10 < watched.steps < 100


def test_a_place_is_where_a_stack_leaves_the_way_to_the_step() -> None:
    from advisor.capture.inside.steps.stack_samples import Place, Sampler

    sampler = Sampler(lambda: False, lambda: 0, lambda _stack, _mode: None, lambda: "waits")

    def here() -> FrameType:
        return sys._getframe(1)

    def train() -> FrameType:
        return here()

    def evaluate() -> FrameType:
        return here()

    at = sys._getframe().f_lineno
    step, _ = sampler.walk(train())
    stack, _ = sampler.walk(evaluate())
    place = Place(sampler.codes, stack, step)
    assert (place.line, place.step_line, place.function) == (at + 2, at + 1, sys._getframe().f_code.co_name)
    assert place.inner[2] == "evaluate"


def test_an_instruction_without_a_line_is_where_its_function_begins() -> None:
    """CPython gives such a frame the line None, which run.json cannot hold."""
    from advisor.capture.inside.steps.stack_samples import Sampler

    sampler = Sampler(lambda: False, lambda: 0, lambda _stack, _mode: None, lambda: "waits")
    code = sys._getframe().f_code
    frame: Any = SimpleNamespace(f_code=code, f_lineno=None, f_back=None, f_locals={})
    stack, _ = sampler.walk(frame)
    assert [line for _, line in stack] == [code.co_firstlineno]


def test_where_no_line_is_recorded_samples_go_on() -> None:
    from advisor.capture.inside.steps.stack_samples import Sampler

    sampler = Sampler(lambda: False, lambda: 0, lambda _stack, _mode: None, lambda: "waits")
    sampler.count, sampler.spent_ns = 80, 32_000_000
    assert sampler._pause(elapsed_ns=5_000_000_000) == pytest.approx(0.4)  # a thousand times what one costs
    sampler.look_closer()
    assert sampler._pause(elapsed_ns=5_000_000_000) == pytest.approx(0.05)
    sampler.spent_ns += 100_000_000
    assert sampler._pause(elapsed_ns=5_000_000_000) > 1


def test_the_loop_around_a_place_is_its_block() -> None:
    from advisor.capture.inside.steps.statements import block_of, statements_of

    text = "for x in a:\n    step(x)\n    if x:\n        for y in b:\n            look(y)\n            count(y)\n"
    blocks = statements_of(ast.parse(text)).blocks

    class Here:
        line = step_line = 0

    found = []
    for line, step_line in ((6, 2), (5, 2), (2, 2), (6, 0)):
        Here.line, Here.step_line = line, step_line
        found.append(block_of(Here, blocks))  # type: ignore[arg-type]
    assert found == [4, 4, 2, 0]


def test_the_if_that_says_how_often_is_the_guard() -> None:
    """Not one that asks something else, not one that the training step is in as well, and not its `else`."""
    from advisor.capture.inside.steps.statements import guard_of, statements_of

    lines = (
        "if x % 2:",
        "    for x in a:",
        "        step(x)",
        "        if (x + 1) % n == 0 and best:",
        "            if x:",
        "                look(y)",
        "        else:",
        "            count(y)",
    )
    guards = statements_of(ast.parse("\n".join(lines))).guards

    class Here:
        line = step_line = 0

    found = []
    for line, step_line in ((6, 3), (8, 3), (3, 3), (6, 0)):
        Here.line, Here.step_line = line, step_line
        found.append(guard_of(Here, guards))  # type: ignore[arg-type]
    assert found == [4, 0, 0, 0]


@pytest.mark.parametrize(
    ("text", "line", "loop"),
    [
        ("def labels(data):\n    return [y for _, y in data]\n", 2, 2),
        ("def labels(data):\n    return list(\n        y\n        for _, y in data\n    )\n", 3, 2),
        ("def labels(data):\n    for x in data:\n        keep(x)\n", 3, 2),
        ("def labels(data):\n    return data.labels\n", 2, 0),
    ],
)
def test_what_repeats_a_call_below_a_place_is_its_loop(text: str, line: int, loop: int) -> None:
    """A comprehension repeats, too."""
    from advisor.capture.inside.steps.statements import loops_of, statements_of

    class Here:
        step_line = 9
        way = (("/labels.py", "labels.py", line, "labels"), ("/labels.py", "labels.py", 99, "read"))

    known = {"/labels.py": statements_of(ast.parse(text))}
    around = ("labels.py", loop, "labels") if loop else ("", 0, "")
    assert loops_of(Here, known) == (around, around)  # type: ignore[arg-type]


def test_a_loop_in_a_function_that_a_loop_calls_is_the_inner_one() -> None:
    from advisor.capture.inside.steps.statements import loops_of, statements_of, turn_of

    text = "def losses(xs):\n    for x in xs:\n        nms(x)\ndef nms(x):\n    while x:\n        x = x[1:]\n"

    class Here:
        step_line = 9
        way = (("/f.py", "f.py", 3, "losses"), ("/f.py", "f.py", 6, "nms"))

    found = loops_of(Here, {"/f.py": statements_of(ast.parse(text))})  # type: ignore[arg-type]
    assert found == (("f.py", 2, "losses"), ("f.py", 5, "nms"))
    # Of the outer one the line that its own function is at; of one that no loop is below, none.
    assert turn_of(Here, {"/f.py": statements_of(ast.parse(text))}) == ("f.py", 3, "losses")  # type: ignore[arg-type]
    assert turn_of(Here, {}) == ("", 0, "")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "step_line", "step_way", "outside"),
    [
        (7, 5, (), True),  # the epoch's evaluation, after the loop over batches
        (4, 5, (), False),
        (7, 0, (), False),
        (12, 11, (("/f.py", 5),), True),  # beside a call of the function that trains for an epoch
        (12, 11, (("/f.py", 2),), False),  # which has no loop there
    ],
)
def test_what_comes_once_in_each_outer_turn_is_outside_of_the_training_loop(
    line: int, step_line: int, step_way: tuple[tuple[str, int], ...], outside: bool
) -> None:
    from advisor.capture.inside.steps.statements import is_outside, statements_of

    lines = ["def train():", "    setup()", "    for epoch in range(9):", "        for batch in batches:"]
    lines += ["            step(batch)", "            log()", "        evaluate()", "def main():"]
    lines += ["    setup()", "    for epoch in range(9):", "        train()", "        evaluate()"]
    # The loop over batches has lines 4 to 6, those over epochs 3 to 7 and 10 to 12.

    class Here:
        source = "/f.py"

    here = Here()
    for name, value in (("line", line), ("step_line", step_line), ("step_way", step_way)):
        setattr(here, name, value)
    known = {"/f.py": statements_of(ast.parse("\n".join(lines)))}
    assert is_outside(here, known) is outside  # type: ignore[arg-type]


def test_stretches_are_told_apart_by_their_length() -> None:
    from advisor.capture.inside.steps.run_times import RunTimes
    from advisor.capture.inside.steps.step_trend import StepTrend
    from advisor.capture.inside.steps.tracker import Tracker

    tracker = Tracker(lambda _now, _trained, _clean: None)
    trend = StepTrend(lambda: None, lambda: None)
    times, now = RunTimes(tracker, lambda: False, lambda: 0, lambda: "waits", trend), 0
    assert times.record() is None

    def boundary(length: int, trained: bool = True, ours: bool = False) -> None:
        nonlocal now
        now += length
        times.boundary(now, trained, ours)
        times.resumed(now)

    boundary(500)
    for length in (100, 104, 98, 102, 99, 101, 400, 100, 100, 149, 700):
        boundary(length)
    boundary(50, trained=False)
    boundary(100, ours=True)
    totals = times.totals
    assert totals.spent_ns | {"end": 0} == {"start": 500, "step": 953, "long": 1100, "between": 50, "end": 0}
    assert totals.count | {"end": 0} == {"start": 1, "step": 9, "long": 2, "between": 1, "end": 0}
    assert totals.usual_ns == pytest.approx(200)
    assert times.ours_ns == 100
    record = times.record()
    assert record is not None
    assert times.record()["count"] == record["count"]  # type: ignore[index]
    assert record["queued_us"] == {}


def test_waits_for_a_core_are_added_up_by_the_kind_of_their_stretch() -> None:
    """What no long step can have had was of the ordinary ones before it, at whose ends the system is not asked."""
    from advisor.capture.inside.steps.run_times import RunTimes
    from advisor.capture.inside.steps.step_trend import StepTrend
    from advisor.capture.inside.steps.tracker import Tracker

    waited, asked = 0, 0

    def read() -> int:
        nonlocal asked
        asked += 1
        return waited

    times = RunTimes(Tracker(lambda *_: None), lambda: False, lambda: 0, lambda: "waits", StepTrend(read, lambda: None))
    times.queued_ns, now = 0, 0
    for ms, queued_ms in ((500, 50), *[(100, 0)] * 8, (100, 30), (100, 40), (400, 300), (700, 800)):
        now, waited = now + 1_000_000 * ms, waited + 1_000_000 * queued_ms
        times.boundary(now, True, False)
        times.resumed(now)
    times.boundary(now + 1000, False, False)  # too short to be looked at
    now, waited = now + 90_000_000, waited + 80_000_000
    times.resumed(now)  # after work of our own, which waited
    times.boundary(now + 100_000_000, True, True)
    record = times.record()
    assert record is not None
    assert record["queued_us"] == pytest.approx({"start": 50e3, "step": 100e3, "long": 1070e3})
    assert asked <= 16  # not at the ends of all


@pytest.mark.parametrize(
    ("file", "name", "mark"),
    [
        ("site-packages/transformers/trainer_pt_utils.py", "nested_concat", "outputs"),
        ("site-packages/accelerate/accelerator.py", "gather_for_metrics", "outputs"),
        ("site-packages/accelerate/accelerator.py", "backward", ""),
        ("site-packages/transformers/trainer.py", "evaluation_loop", "evaluate"),
    ],
)
def test_what_frameworks_keep_of_an_evaluation_is_marked(file: str, name: str, mark: str) -> None:
    from advisor.capture.inside.steps.code_marks import _mark

    assert _mark(f"/usr/lib/{file}", name) == mark
