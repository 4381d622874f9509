"""Windows after the first, on real scripts: every so many steps, on request, and begun late."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from capture_runs import COMMAND, LIMIT_S, advised, capture, environment

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no SIGUSR1 here")]

SCRIPT = """
import os, signal, sys, time, torch
from torch.utils.data import DataLoader, TensorDataset
steps, kill_at, own, wait = (int(word) for word in sys.argv[1:5])
if own:
    signal.signal(signal.SIGUSR1, lambda *_: print("mine", flush=True))
data = TensorDataset(torch.randn(400, 32), torch.randn(400, 1))
model, large = torch.nn.Linear(32, 1), torch.randn(300_000)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
number = 0
while number < steps:
    for x, y in DataLoader(data, batch_size=4):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        if number > 250:
            late = torch.sin(large)
        optimizer.step()
        number += 1
        time.sleep(wait / 1000)
        if number == kill_at:
            os.kill(os.getpid(), signal.SIGUSR1)
        if number == steps:
            break
print("done", flush=True)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "late.py"
    path.write_text(SCRIPT)
    return path


TWO_LOOPS = """
import time, torch
model = torch.nn.Linear(32, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, known = torch.randn(8, 32), [str(number) for number in range(100_000)]
def pretrain():
    for _ in range(60):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        time.sleep(0.012)
        optimizer.step()
def train():
    for _ in range(180):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        count = sum(known.count("none") for _ in range(12))
        optimizer.step()
pretrain()
train()
"""


@pytest.mark.complete
def test_a_script_that_pretrains_first_is_told_of_the_loop_that_follows(tmp_path: Path) -> None:
    """Its first window lies in a loop that is soon over; what most of the time goes to is in the other one."""
    (tmp_path / "train.py").write_text(TWO_LOOPS)
    done = advised("-o", "out", "--no-calibrate", "train.py", cwd=tmp_path)
    assert done.status == 0, done.err
    rank = json.loads((tmp_path / "out" / "run.json").read_bytes())["ranks"][0]
    assert [one["why"] for one in rank["later"]] == ["elsewhere"], rank["notes"]
    assert 60 < rank["later"][0]["at"] <= 60 + 3 * 16
    assert rank["later"][0]["dataflow"]["file"] != rank["dataflow"]["file"]
    assert (tmp_path / "out" / rank["later"][0]["dataflow"]["file"]).is_file()
    report = json.loads((tmp_path / "out" / "report.json").read_bytes())
    (note,) = [one["message"] for one in report["health"] if one["id"] == "later-window"]
    assert note.startswith("training moved to another loop")
    assert "what ops read" not in note
    assert not [one for one in report["outcomes"] if "which ops read" in (one["reason"] or "")]
    (found,) = [one for one in report["outcomes"] if one["rule"] == "host-work"]
    lines = [place["line"] for finding in found["findings"] for place in finding["where"]]
    assert 18 in lines, found
    # The first window is still there; and the folder is known as one of ours by whoever writes to it again.
    again = advised("-o", "out", "--no-calibrate", "train.py", cwd=tmp_path)
    assert (again.status, (tmp_path / "out.1" / "run.json").is_file()) == (0, True), again.err
    before = analyzed("out", "--window", "1", "--format", "json", cwd=tmp_path)
    assert 1e3 * 10 < json.loads(before.stdout)["metrics"]["step_time_us"]["value"] < 1e3 * 40


def test_windows_every_so_many_steps_change_nothing_of_the_first(script: Path, tmp_path: Path) -> None:
    done = advised(
        "-o", "out", "--steps", "4", "--every", "150", "--no-calibrate", script.name, "460", "0", "0", "0", cwd=tmp_path
    )
    assert (done.status, done.out) == (0, b"done\n"), done.err
    rank = json.loads((tmp_path / "out" / "run.json").read_bytes())["ranks"][0]
    assert [(one["at"], one["why"]) for one in rank["later"]] == [(150, "every"), (300, "every")]
    for window in rank["later"]:
        first = min(step for file in window["files"] for step in file["steps"].values())
        assert window["at"] < first < window["at"] + 40
        assert {file["role"] for file in window["files"]} == {"profile", "lines"}
        assert all((tmp_path / "out" / file["path"]).stat().st_size for file in window["files"])
        assert len(window["steps"]["profiled_us"]) == 4
        assert len(window["steps"]["unprofiled_us"]) == 20
    profiled = {
        step for window in (rank, *rank["later"]) for file in window["files"] for step in file["steps"].values()
    }
    # Each step that another window timed, or that its profiler was at work in, is none of the first one's.
    assert len(rank["steps"]["unprofiled_us"]) < 460 - len(profiled) - 2 * 20
    report = json.loads((tmp_path / "out" / "report.json").read_bytes())
    assert [(one["why"], one["steps"]) for one in report["windows"]] == [("first", 4), ("every", 4), ("every", 4)]
    moved = {one["name"]: one for one in report["windows"][2]["moved"]}
    assert (moved["aten::sin"]["before_calls"], moved["aten::sin"]["after_calls"]) == (0, 1)
    assert b"Windows of the run" in done.err
    assert b"after step 300" in done.err
    # The last window judged by the rules: its own steps and ops, and the settings of the script.
    judged = analyzed("out", "--window", "3", "--format", "json", cwd=tmp_path)
    assert judged.returncode == 0, judged.stderr
    later = json.loads(judged.stdout)
    assert "window 3 of 3, after step 300" in " ".join(one["message"] for one in later["health"])
    assert later["metrics"]["step_time_us"]["value"] == pytest.approx(report["windows"][2]["step_us"])
    assert any(row["name"] == "aten::sin" for row in later["ops"])
    assert not any(row["name"] == "aten::sin" for row in report["ops"])
    refused = analyzed("out", "--window", "4", cwd=tmp_path)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "3 windows" in refused.stderr


def analyzed(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "analyze", *words]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=environment(None), timeout=LIMIT_S, check=False
    )


@pytest.mark.complete
def test_a_signal_asks_for_a_window_where_the_script_leaves_it_alone(script: Path, tmp_path: Path) -> None:
    done = capture(tmp_path / "asked", script, "400", "250", "0", "0", steps=3)
    assert (done.status, done.out) == (0, "done\n"), done.err
    (window,) = done.rank["later"]
    assert (window["at"], window["why"]) == (250, "asked")
    theirs = capture(tmp_path / "theirs", script, "400", "250", "1", "0", steps=3)
    assert (theirs.status, theirs.out) == (0, "mine\ndone\n"), theirs.err
    assert theirs.rank["later"] == []


@pytest.mark.complete
@pytest.mark.parametrize(("option", "first"), [({"at_step": 230}, 230), ({"at_epoch": 3}, 200)])
def test_the_first_window_begins_late(script: Path, tmp_path: Path, option: dict[str, int], first: int) -> None:
    """Iterations count from 0, and an epoch has 100. A window that came at a busy moment is recorded once more."""
    done = capture(tmp_path / "out", script, "400", "0", "0", "0", steps=3, **option)
    steps = [step for file in done.rank["files"] if file["role"] == "profile" for step in file["steps"].values()]
    assert first <= min(steps) < max(steps) < first + 80


@pytest.mark.complete
def test_a_step_that_never_comes_is_said(script: Path, tmp_path: Path) -> None:
    done = advised("--at-step", "9000", script.name, "60", "0", "0", "0", cwd=tmp_path)
    assert done.status == 0
    assert b"nothing was profiled: the script ended after 60 steps, before step 9,000" in done.err
    done = advised("--at-step", "20", "--warmup", "3", script.name, "60", "0", "0", "0", cwd=tmp_path)
    assert (done.status, done.err) == (2, b"advisor: --at-step and --warmup both set where profiling starts; use one\n")


@pytest.mark.complete
def test_attach_asks_a_running_training(script: Path, tmp_path: Path) -> None:
    command = [*COMMAND, "run", "-q", "--no-calibrate", "-o", "out", script.name, "3000", "0", "1", "4"]
    run = subprocess.Popen(command, cwd=tmp_path, env=environment(None), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        done = _attached(run.pid)
        assert done.returncode == 0, done.stderr
        assert b"advisor: recorded" in done.stderr
        assert f"advisor analyze {tmp_path / 'out'}".encode() in done.stderr
    finally:
        run.kill()
        run.communicate()


def _attached(pid: int) -> subprocess.CompletedProcess[bytes]:
    """Asked again while the first window is not over."""
    until = time.monotonic() + LIMIT_S
    while True:
        words = [*COMMAND, "attach", str(pid)]
        done = subprocess.run(words, capture_output=True, timeout=LIMIT_S, check=False)
        early = b"first window is not complete" in done.stderr or b"was not started by" in done.stderr
        if not early or time.monotonic() > until:
            return done
        time.sleep(0.5)


def test_attach_says_what_it_cannot_ask() -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        done = subprocess.run([*COMMAND, "attach", str(other.pid)], capture_output=True, timeout=LIMIT_S, check=False)
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
        assert b"was not started by `advisor run`" in done.stderr
    finally:
        other.kill()
        other.wait()
    done = subprocess.run([*COMMAND, "attach", str(other.pid)], capture_output=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 2
    assert b"no such process" in done.stderr


@pytest.mark.complete
def test_a_run_that_is_killed_between_windows_leaves_what_it_had(script: Path, tmp_path: Path) -> None:
    text = SCRIPT.replace("signal.SIGUSR1)", "signal.SIGKILL)")
    script.write_text(text)
    done = capture(tmp_path / "out", script, "900", "600", "0", "0", steps=3, every=200)
    assert done.status == -signal.SIGKILL
    assert [one["at"] for one in done.rank["later"]] == [200, 400]
    assert len(done.step_rows()) == 3
