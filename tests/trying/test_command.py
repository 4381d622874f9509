"""`advisor try` as it is typed: whole sessions with real processes, interrupts, and mistakes of the command line."""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from msgspec.structs import replace

from advisor import cli
from advisor.engine import registry
from advisor.gate.pairs import Side
from advisor.gate.turns import environment
from advisor.model import (
    Counted,
    Finding,
    Fix,
    Metric,
    Outcome,
    Report,
    RunInfo,
    Saving,
    Speed,
    StepsSummary,
    Treatment,
    Trial,
    Tried,
)
from advisor.report.report_file import decode, encode
from advisor.trying.candidates import Candidate
from advisor.trying.pairing import layout_of, measurer
from advisor.trying.session import Session

# `time.sleep` of the script is what this variable makes it: a change of the environment that is worth most of the step.
PAUSED = """
import os, time
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn({samples}, 16))
for (x,) in torch.utils.data.DataLoader(data, batch_size=4, shuffle=True):
    optimizer.zero_grad()
    time.sleep(float(os.environ.get("PAUSE", "0.02")))
    (model(x).pow(2).mean() * float(os.environ.get("FACTOR", "1"))).backward()
    optimizer.step()
"""


def advisor(folder: Path, *words: str, timeout: float = 900) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "advisor", "try", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout, check=False)


@pytest.mark.torch
@pytest.mark.complete
@pytest.mark.skipif("ADVISOR_SESSIONS" not in os.environ, reason="a session of 100 s; set ADVISOR_SESSIONS=1 for it")
def test_a_change_that_is_worth_half_of_the_step_is_proven_with_equal_losses(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(PAUSED.format(samples=600))
    done = advisor(tmp_path, "--budget", "1h", "--with", "environment:PAUSE=0.002", "--with", "environment:FACTOR=50",
                   "--with", "ddp:static_graph=True", "train.py")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "3 changes to try in 60 min" in done.stderr
    assert "base against base, pair 4 of 4" in done.stderr
    lines = done.stdout.splitlines()
    rows = {lines[place]: lines[place + 1] for place in range(len(lines) - 1)}
    assert "faster" in rows["environment:PAUSE=0.002"]
    assert "equal" in rows["environment:PAUSE=0.002"]
    assert "changes training" in rows["environment:FACTOR=50"]
    assert "no effect" in rows["ddp:static_graph=True"]
    assert "equal seeds: bitwise equal losses" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.py"]


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """For temporary files: the path of a worker's socket has at most 107 bytes, which one below tmp_path exceeds."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.mark.torch
@pytest.mark.complete
@pytest.mark.parametrize(
    ("number", "change", "until"),
    [(signal.SIGINT, "set_to_none", "pair 1 of 4"), (signal.SIGTERM, "", "pair 4 of 4")],
)
def test_an_interrupt_leaves_no_process_and_no_file(
    tmp_path: Path, short_folder: Path, number: signal.Signals, change: str, until: str
) -> None:
    pytest.importorskip("torch")
    work, temporary = tmp_path / "work", short_folder  # others use the system's own folder meanwhile
    work.mkdir()
    # A worker's process, which has sockets of its own, and one more width in the patch.
    text = PAUSED.format(samples=400_000).replace("shuffle=True", "shuffle=True, num_workers=1")
    text = text.replace('"0.02"', '"0.002"')
    wider = text.replace("nn.Linear(16, 4)", "nn.Linear(16, 5)")
    (work / "train.py").write_text(text)
    lines = (one.splitlines(keepends=True) for one in (text, wider))
    (tmp_path / "faster.patch").write_text("".join(difflib.unified_diff(*lines, "a/train.py", "b/train.py")))
    words = ["--with", change] if change else ["--patch", "../faster.patch"]
    command = [sys.executable, "-m", "advisor", "try", *words, "train.py"]
    own = os.environ | {"TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(command, cwd=work, env=own, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        late = threading.Timer(300, process.kill)  # or a script that hangs would hang this test
        late.start()
        for line in process.stderr:
            if until in line:
                break
        late.cancel()
        time.sleep(1.0)  # in the middle of the next pair
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert [path.name for path in work.iterdir()] == ["train.py"]
    assert (work / "train.py").read_text().count("nn.Linear(16, 4)") == 1
    assert [*temporary.glob("advisor-*"), *temporary.glob("pymp-*")] == []
    places = (str(work), str(temporary))
    assert not [pid for pid in running() if str(working_folder(pid)).startswith(places)]


def running() -> list[str]:
    return [entry.name for entry in Path("/proc").glob("[0-9]*")]


def working_folder(pid: str) -> Path | None:
    try:
        return Path(f"/proc/{pid}/cwd").readlink()
    except OSError:
        return None


@pytest.mark.torch
@pytest.mark.complete
def test_a_script_with_too_few_steps_is_told_how_many_it_has(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(PAUSED.format(samples=44))
    done = advisor(tmp_path, "--with", "set_to_none", "train.py")
    assert done.returncode == 4
    assert "give it more batches" in done.stderr
    assert "Traceback" not in done.stderr


# -- mistakes, and what needs no process


def stored(folder: Path, *, treatment: Treatment | None = None, command: tuple[str, ...] = ("train.py",)) -> Report:
    """A report of train.py with one finding, in a folder."""
    fix = Fix("Set `num_workers=2`", "exact", treatment=treatment)
    found = Finding("The loop waits.", Saving(2_000.0, 4_000.0, "replayed", "how"), fix=fix)
    metrics = {"step_time_us": Metric("step_time_us", 10_000.0, "us")}
    outcomes = (Outcome("input-bound", "found", (found,), title="The step waits for its batch"),)
    report = Report(RunInfo(command), (), StepsSummary(), metrics, (), outcomes)
    folder.mkdir()
    (folder / "report.json").write_bytes(encode(report))
    return report


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "no script given"),
        (("absent.py",), 2, "absent.py"),
        (("--with", "magic", "train.py"), 2, "there is no treatment 'magic'"),
        (("--with", "loader:two", "train.py"), 2, "is not an argument"),
        (("--report", "kept", "--only", "input-bond", "train.py"), 2, "did you mean 'input-bound'?"),
        (("--report", "kept", "other.py"), 2, "a report of train.py, not of other.py"),
        (("--report", "kept", "inner/train.py"), 2, "a report of train.py, not of inner/train.py"),
        (("--report", "secret"), 2, "arguments are left out of it as secrets"),
        (("--report", "absent", "train.py"), 2, "no such report"),
    ],
)
def test_a_mistake_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inner").mkdir()
    for name in ("train.py", "other.py", "inner/train.py"):
        (tmp_path / name).write_text("")
    stored(tmp_path / "kept")
    stored(tmp_path / "secret", command=("train.py", "--token", "***"))
    assert cli.main(["try", *words]) == code
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1


def test_findings_that_cannot_be_tried_are_listed_with_their_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    stored(tmp_path / "kept")
    assert cli.main(["try", "--report", "kept", "train.py"]) == 0
    shown = capsys.readouterr().out
    assert "not tried: Set `num_workers=2` (input-bound): the fix is an edit to the script" in " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= 80


def test_a_report_knows_its_script_and_says_where_that_was_changed_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "train.py").write_text("")
    stored(tmp_path / "kept", treatment=Treatment("loader", {"num_workers": 2}), command=("train.py", "--epochs", "3"))
    started = []

    def session(_args: object, base: Side, _found: object) -> tuple[Tried, None]:
        started.append(base.command)
        return Tried((Trial("t", "not proven", "", ("input-bound",)),)), None

    monkeypatch.setattr(import_module("advisor.commands.try"), "_session", session)
    made_s = (tmp_path / "kept" / "report.json").stat().st_mtime
    assert cli.main(["try", "--report", "kept", "--no-remember"]) == 0
    assert started == [(sys.executable, "train.py", "--epochs", "3")]
    assert "was changed" not in capsys.readouterr().err
    assert (tmp_path / "kept" / "report.json").stat().st_mtime == made_s  # what was tried is added to it
    os.utime(tmp_path / "train.py", (made_s + 10, made_s + 10))
    assert cli.main(["try", "--report", "kept", "--no-remember"]) == 0
    assert "train.py was changed after this report" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("1h", 3600), ("2", 120)])
def test_a_budget_is_a_duration(text: str, seconds: float) -> None:
    args = cli.build_parser(["try"]).parse_args(["try", "--budget", text, "train.py", "--budget", "mine"])
    assert args.budget == seconds
    assert args.target == ["train.py", "--budget", "mine"]


# -- what reports show of it


def test_what_was_measured_outranks_what_was_promised(tmp_path: Path) -> None:
    treatment = Treatment("loader", {"num_workers": 2})
    report = stored(tmp_path / "kept", treatment=treatment)
    trial = Trial(
        "Set `num_workers=2`", "faster", "", ("input-bound",), "exact", (treatment,), 0.2, 0.4,
        0.25, 0.22, 0.28, 6, Speed(10_000.0, 10_100.0, 11_000.0), Speed(7_500.0, 7_600.0, 8_000.0), "equal",
        900_000_000, 500_000_000, counters=(Counted("wait for data", 2_600.0, 100.0, "us"),), mechanism="moved",
    )  # fmt: skip
    report = replace(report, tried=Tried((trial,), noise=0.01, repeats=True, budget_s=600.0, seconds=100.0))
    assert decode(encode(report)) == report
    assert json.loads(encode(report))["tried"]["trials"][0]["gain"] == 0.25
    page, text = (registry.load_reporter(name)(report) for name in ("html", "text"))
    assert "measured on this machine" in page
    assert "25.0 % of the step [22.0, 28.0]" in page
    assert "+400 MB" in page
    assert "a step of 10 ms (mean 10.1 ms, p90 11 ms)" in page
    assert "now 7.5 ms (mean 7.6 ms, p90 8 ms); wait for data 2.6 ms -&gt; 100 µs" in page
    assert "measured on this machine: faster: 25.0 % of the step [22.0, 28.0]" in " ".join(text.split())


def test_a_second_session_says_how_the_first_promise_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "train.py").write_text("")
    treatment = Treatment("loader", {"num_workers": 2})
    stored(tmp_path / "kept", treatment=treatment)
    done = Trial("t", "faster", "", ("input-bound",), "exact", (treatment,), 0.2, 0.4, 0.25, 0.22, 0.28, 6)
    monkeypatch.setattr(import_module("advisor.commands.try"), "_session", lambda *_: (Tried((done,)), None))
    kept = tmp_path / "data" / "torch-advisor" / "tried.jsonl"
    words = ["try", "--report", "kept", "--export", "card.json"]
    assert cli.main([*words, "--no-remember", "train.py"]) == 0
    assert not kept.exists()
    assert cli.main([*words, "train.py"]) == 0
    assert "earlier" not in capsys.readouterr().out
    assert cli.main([*words, "train.py"]) == 0
    assert "earlier on this machine: 1 of 1 predictions held" in capsys.readouterr().out
    assert kept.read_text().count("\n") == 2
    assert "train" not in Path("card.json").read_text()


# The limit is that of the memory after the first steps and room for a batch, but not for one 500 times as large.
LIMITED = """
import resource
import torch
from torch import nn

torch.set_num_threads(1)
model = nn.Linear(1000, 1000)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(20_000, 1))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 200_000_000,) * 2)
for _ in range(9):
    for (x,) in torch.utils.data.DataLoader(data, batch_size=20, shuffle=True):
        optimizer.zero_grad()
        model(x.expand(-1, 1000)).relu().pow(2).mean().backward()
        optimizer.step()
"""


@pytest.mark.torch
@pytest.mark.complete
def test_a_batch_that_does_not_fit_is_out_of_memory_and_the_session_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(LIMITED)
    base = Side("base", (sys.executable, "train.py"), tmp_path, environment())
    layout, _, _ = layout_of(base)
    session = Session(
        base, measurer(dataclasses.replace(layout, turns=20), random.Random(0)), 3600.0, lambda _text: None
    )
    session.began = time.monotonic()
    session.noise = 0.0  # of a self-test, which is left out here
    for scale in (2000, 2):
        session._try(Candidate(f"times {scale}", (Treatment("batch", {"scale": scale}),)), "")
    much, twice = session.trials
    assert much.verdict == "out of memory"
    assert "allocate" in much.why
    assert twice.verdict in ("faster", "slower", "not proven")
    assert twice.work == pytest.approx(2, rel=0.02)
    assert twice.numbers == "not compared"
    assert twice.base is not None
    assert twice.base.samples_per_s is not None
