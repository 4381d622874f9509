"""Scripts that train in one loop and then in another: each window has the step times and settings of its own loop."""

from __future__ import annotations

import json
import signal
import statistics
from pathlib import Path
from typing import Any

import pytest
from capture_runs import Captured, capture

from advisor.inputs import jobs

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SCRIPT = """
import json, os, signal, sys, time, torch
from torch.utils.data import DataLoader, TensorDataset
kind, first, second = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
small, large = torch.nn.Linear(32, 8), torch.nn.Linear(32, 3)
took = {}

def spend(ms):
    until = time.perf_counter() + ms / 1e3
    while time.perf_counter() < until:
        pass

def step(model, optimizer, x, ms):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    spend(ms)

def evaluate():
    with torch.no_grad():
        for (x,) in DataLoader(TensorDataset(torch.randn(40, 32)), batch_size=5):
            small(x)

def loop(name, model, optimizer, loader, steps, ms):
    began, took[name] = time.perf_counter(), []
    while len(took[name]) < steps:
        for (x,) in loader:
            step(model, optimizer, x, ms)
            now = time.perf_counter()
            took[name].append(1e3 * (now - began))
            began = now
            if len(took[name]) == steps:
                break
            if kind == "killed" and name == "train" and len(took[name]) == 30:
                os.kill(os.getpid(), signal.SIGKILL)

def pretrain():
    data = DataLoader(TensorDataset(torch.randn(240, 32)), batch_size=8, shuffle=True)
    loop("pretrain", small, torch.optim.SGD(small.parameters(), lr=0.01), data, first, 5)

def train():
    torch.set_num_threads(2)
    data = DataLoader(TensorDataset(torch.randn(960, 32)), batch_size=64)
    loop("train", large, torch.optim.AdamW(large.parameters(), lr=0.001, foreach=False), data, second, 40)

def in_turns():
    data = DataLoader(TensorDataset(torch.randn(320, 32)), batch_size=8)
    one, other = (torch.optim.SGD(model.parameters(), lr=0.01) for model in (small, large))
    for _ in range(4):
        for number, (x,) in enumerate(data):
            if number < 20:
                one.zero_grad(); small(x).square().mean().backward(); one.step()
            else:
                other.zero_grad(); large(x).square().mean().backward(); other.step()
            spend(2)

if kind == "turns":
    in_turns()
else:
    pretrain()
    evaluate()
    train()
print(json.dumps({name: sorted(times)[len(times) // 2] for name, times in took.items()}))
"""


def run(folder: Path, kind: str, first: int = 0, second: int = 0, **options: Any) -> Captured:
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(SCRIPT)
    return capture(folder / "out", folder / "train.py", kind, str(first), str(second), **options)


def ms(steps: dict[str, Any]) -> float:
    return statistics.median(steps["unprofiled_us"]) / 1e3


def settings(window: dict[str, Any]) -> list[Any]:
    loaders, optimizers = window["loaders"], window["optimizers"]
    return [[one["batch_size"] for one in loaders], [one["name"] for one in optimizers], window["settings"]["threads"]]


@pytest.mark.complete
def test_each_window_has_the_settings_and_the_step_times_of_its_loop(tmp_path: Path) -> None:
    """The second loop has fewer steps than are timed before a window where nothing is known of the loop."""
    done = run(tmp_path, "both", 60, 15)
    assert done.status == 0, done.err
    (window,) = done.rank["later"]
    assert (settings(done.rank), settings(window)) == ([[8], ["SGD"], 1], [[64], ["AdamW"], 2])
    evaluated = [[one["batch_size"] for one in each["evaluation_loaders"]] for each in (done.rank, window)]
    assert evaluated == [[5], []], "between the loops"
    assert [one["line"] for one in window["optimizers"]] == [
        SCRIPT[: SCRIPT.index("torch.optim.AdamW")].count("\n") + 1
    ]
    assert (done.rank["run"]["moved_at"], window["why"]) == ([60], "elsewhere")
    # No step of one is that long in the other, however busy the machine.
    assert min(window["steps"]["unprofiled_us"]) >= 40e3
    measured = json.loads(done.out)
    assert ms(done.rank["steps"]) == pytest.approx(measured["pretrain"], rel=0.3)
    assert ms(window["steps"]) == pytest.approx(measured["train"], rel=0.3)
    assert 0 < window["vitals"]["timed_steps"] <= 15
    # What reads the window knows what holds there.
    (job,) = jobs.find([done.folder])
    (trace,) = jobs.windowed(job, 2).traces
    assert trace.record is not None
    assert trace.record.optimizers[0].name == "AdamW"
    assert trace.record.settings.threads == 2
    assert trace.record.vitals is not None
    assert trace.record.vitals.ended


@pytest.mark.complete
def test_a_first_loop_that_is_over_before_its_window_is_none(tmp_path: Path) -> None:
    done = run(tmp_path, "both", 12, 60)
    assert done.status == 0, done.err
    assert (done.rank["later"], settings(done.rank)) == ([], [[64], ["AdamW"], 2])
    assert min(done.rank["steps"]["unprofiled_us"]) >= 40e3
    assert min(iteration for file in done.rank["files"] for iteration in file["steps"].values()) > 12


@pytest.mark.complete
def test_losses_that_take_turns_within_an_epoch_are_of_one_loop(tmp_path: Path) -> None:
    done = run(tmp_path, "turns")
    assert done.status == 0, done.err
    assert (done.rank["later"], done.rank["run"]["moved_at"]) == ([], [])
    assert {one["name"] for one in done.rank["optimizers"]} == {"SGD"}


@pytest.mark.complete
def test_a_run_that_is_killed_in_its_second_loop_leaves_both(tmp_path: Path) -> None:
    done = run(tmp_path, "killed", 60, 60)
    assert done.status == -signal.SIGKILL
    (window,) = done.rank["later"]
    assert (settings(done.rank), settings(window)) == ([[8], ["SGD"], 1], [[64], ["AdamW"], 2])
    assert all((done.folder / file["path"]).is_file() for one in (done.rank, window) for file in one["files"])


@pytest.mark.complete
def test_a_window_every_so_many_steps_has_the_settings_of_the_loop_it_lies_in(tmp_path: Path) -> None:
    done = run(tmp_path, "both", 100, 90, every=70)
    assert done.status == 0, done.err
    (job,) = jobs.find([done.folder])
    later = {window.at: window for window in job.traces[0].later}
    assert {70, 140} <= later.keys()
    (trace,) = jobs.where_it_trains(job).traces
    assert [window.at for window in trace.later] == [140], "compared with the loop that it lies in"
    assert all(
        window.record is not None and window.record.optimizers[0].name == ("SGD" if at < 100 else "AdamW")
        for at, window in later.items()
    )
    assert all(min(w["steps"]["unprofiled_us"]) >= 40e3 for w in done.rank["later"] if w["at"] >= 100)
    assert max(done.rank["steps"]["unprofiled_us"]) < 40e3 or ms(done.rank["steps"]) < 20
