"""Steps, told apart in loops of every shape: counted as the script counts them, timed, and marked in the trace."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from capture_runs import SCRIPTS, Captured, capture
from tiers import complete

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


Loop = Callable[..., tuple[Captured, dict[str, int]]]


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Loop:
    """Captures a loop of scripts/loops.py, each once: `loop(name, **options)` is that, and what it says it did."""

    @cache
    def captured(*words: str, **options: Any) -> tuple[Captured, dict[str, int]]:
        return run(tmp_path_factory.mktemp(words[0]), *words, **options)

    return captured


def run(folder: Path, *words: str, **options: Any) -> tuple[Captured, dict[str, int]]:
    done = capture(folder, SCRIPTS / "loops.py", *words, **options)
    assert done.status == 0, done.err
    # Kineto talks on stderr when a script profiles itself before we did; nothing else may be there.
    talk = re.compile(r"[A-Z]+:\d{4}-\d\d-\d\d |\[W kineto_shim")
    assert [line for line in done.err.splitlines() if not talk.match(line)] == []
    return done, json.loads(done.out.splitlines()[-1])


def check(done: Captured, did: dict[str, int], source: str) -> dict[str, Any]:
    """What holds for every loop with steps."""
    steps = done.rank["steps"]
    assert done.rank["notes"] == []
    assert steps["source"] == source
    assert steps["optimizer_steps"] == did["optimizer_steps"]
    rows = done.step_rows()
    (file,) = [one for one in done.rank["files"] if one["role"] == "profile"]
    assert {row["name"]: int(row["name"].split("#")[1]) for row in rows} == file["steps"]
    assert len(rows) == len(file["steps"]) == len(steps["profiled_us"]) > 0
    # Two clocks saw the same steps: Kineto's row and ours differ by what opening and closing a row costs. The step that
    # nothing disturbed between the two tells: 111 and 132 us on a busy EPYC.
    differences = [row["dur"] - seen for row, seen in zip(rows, steps["profiled_us"], strict=True)]
    assert min(abs(one) for one in differences) < 300
    events = done.events()
    for row in rows:
        inside = [one["name"] for one in events if row["ts"] <= one["ts"] < row["ts"] + row["dur"]]
        assert any("Backward" in name for name in inside), "a step without a backward is no training step"
    assert steps["unprofiled_us"]
    assert min(steps["unprofiled_us"]) > 0
    return steps


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("plain", "loader"),
        ("no_loader", "optimizer"),
        *complete(("accumulation", "loader"), ("own_steps", "user")),
        *complete(("gan", "optimizer"), ("scaler", "loader"), ("lbfgs", "loader"), ("iterable", "loader")),
        *complete(("ranges", "loader"), ("zipped", "loader"), ("recreated", "loader"), ("full_batch", "loader")),
        *complete(("workers", "loader"), ("in_backward", "loader")),
    ],
)
def test_loops_of_every_shape(loop: Loop, name: str, source: str) -> None:
    if name == "scaler" and not hasattr(torch.amp, "GradScaler"):
        pytest.skip("this torch scales gradients on CUDA alone")
    done, did = loop(name)
    steps = check(done, did, source)
    assert steps["count"] == did["iterations"]
    assert steps["eval_count"] == 0
    assert not any(file["partial"] for file in done.rank["files"])


def test_evaluation_is_counted_and_in_no_figure(loop: Loop) -> None:
    """Validation before, inside and after: its batches are counted, no step holds one."""
    done, did = loop("evaluation", steps=20)
    steps = check(done, did, "loader")
    assert steps["eval_count"] == did["eval"] > 0
    assert steps["count"] == did["iterations"]
    between = [row for row in done.events() if row["name"].startswith("advisor:between#")]
    assert between, "the window of 20 steps spans an evaluation of every 15"
    fetches = [row["ts"] for row in done.events() if row["name"].startswith("enumerate(DataLoader)")]
    for row in done.step_rows():
        assert sum(row["ts"] <= ts < row["ts"] + row["dur"] for ts in fetches) == 1


@pytest.mark.parametrize(("name", "expected"), [("plain", 15), ("no_loader", 20)])
def test_many_short_steps_are_recorded(loop: Loop, name: str, expected: int) -> None:
    """A quarter of an epoch of 60 batches; twenty where the length of the loop is not known. Whole, and with lines."""
    done, _ = loop(name)
    assert statistics.median(done.rank["steps"]["unprofiled_us"]) < 10_000, "these steps are not short"
    assert len(done.step_rows()) == expected
    assert [(file["role"], file["partial"]) for file in done.rank["files"]] == [("profile", False), ("lines", False)]


@pytest.mark.complete
def test_accumulation_has_a_quarter_of_an_optimizer_step_per_step(loop: Loop) -> None:
    done, _ = loop("accumulation")
    steps = done.rank["steps"]
    assert steps["optimizer_steps"] / steps["count"] == pytest.approx(0.25, abs=0.01)


@pytest.mark.complete
def test_fewer_steps_than_the_window(loop: Loop) -> None:
    """Three steps in all: the trace holds what there was and says that it is partial."""
    done, _ = loop("few")
    (file,) = [one for one in done.rank["files"] if one["role"] == "profile"]
    assert file["partial"]
    assert len(done.step_rows()) == 1


@pytest.mark.complete
@pytest.mark.parametrize(("first", "last"), [(50, 52), *complete((0, 2), (2, 59))])
def test_a_script_with_a_profiler_of_its_own(loop: Loop, first: int, last: int) -> None:
    """Before, inside or all over our window: theirs is whole, ours gives way, the process lives."""
    done, did = loop("records", str(first), str(last), steps=10)
    assert did["own_backwards"] == did["own_expected"]
    assert did["iterations"] == 60
    traces = [file for file in done.rank["files"] if file["role"] == "profile"]
    if first == 2:
        assert traces == []
        assert any("profiler" in note for note in done.rank["notes"])
        return
    (file,) = traces
    assert file["partial"] == (first == 50)
    assert all(int(name.split("#")[1]) not in range(first, last + 1) for name in file["steps"])


@pytest.mark.complete
def test_no_optimizer_and_no_loader_give_a_time_window(loop: Loop) -> None:
    done, _ = loop("by_hand")
    assert done.rank["steps"]["source"] == "window"
    assert done.rank["steps"]["count"] == 0
    names = {row["name"] for row in done.events()}
    assert any("MmBackward" in name for name in names)
    assert done.step_rows() == []


@pytest.mark.complete
def test_inference_is_not_called_training(loop: Loop) -> None:
    done, did = loop("inference")
    steps = done.rank["steps"]
    assert (steps["source"], steps["count"], steps["eval_count"]) == ("window", 0, did["eval"])


def test_unprofiled_times_agree_with_the_scripts_own_clock(tmp_path: Path) -> None:
    """The script times its steps itself: nine in ten of those that capture times are among them, within 2 %."""
    script = tmp_path / "timed.py"
    script.write_text(
        "import json, sys, time\nimport torch\ntorch.set_num_threads(1)\n"
        "from torch.utils.data import DataLoader\nmodel = torch.nn.Linear(8, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\ntimes = []\nlast = None\n"
        "for batch in DataLoader(torch.randn(80, 8), batch_size=1):\n"
        "    now = time.perf_counter()\n    times += [now - last] if last else []\n    last = now\n"
        "    model(batch).sum().backward()\n    optimizer.step()\n    time.sleep(0.01)\n"
        "print(json.dumps(times))\n"
    )
    done = capture(tmp_path / "out", script)
    own_us = [1e6 * one for one in json.loads(done.out)]
    seen_us = done.rank["steps"]["unprofiled_us"]
    assert len(seen_us) > 30
    # A loaded machine stretches single steps, the same ones on both clocks; which of the script's are seen is not said.
    agree = [min(abs(seen - own) for own in own_us) < 0.02 * seen for seen in seen_us]
    assert sum(agree) > 0.9 * len(agree)


@pytest.mark.complete
def test_stop_after_profile_ends_the_script_once_its_trace_is_whole(tmp_path: Path) -> None:
    # A busy machine may make some steps look like another kind, and that is waited for up to 25 steps.
    done = capture(tmp_path / "out", SCRIPTS / "loops.py", "plain", "5", stop=True, steps=5, warmup=2)
    assert done.status == 0
    assert done.out == "", "the script went on after its profile"
    assert len(done.step_rows()) == 5
    assert {file["role"] for file in done.rank["files"]} == {"profile", "lines"}


@pytest.mark.complete
def test_options(tmp_path: Path) -> None:
    """--steps, --warmup, --no-lines, --memory and --rank."""
    done = capture(tmp_path / "a", SCRIPTS / "loops.py", "plain", steps=3, warmup=20, lines=False, memory=True)
    (file,) = done.rank["files"]
    assert len(file["steps"]) == 3
    assert min(file["steps"].values()) >= 20
    other = capture(tmp_path / "b", SCRIPTS / "loops.py", "plain", ranks=(1,))
    assert (other.status, other.record["ranks"]) == (0, [])
