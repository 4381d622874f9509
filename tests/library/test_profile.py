"""`advisor.profile` in a process of its own: what it reports, and that it leaves the process as it found it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

SCRIPT = """
import atexit, gc, json, os, signal, sys, tempfile, threading
import torch, advisor
from torch.utils.data import DataLoader, TensorDataset
import torch.utils.data.dataloader as loading
from torch.amp import autocast_mode
from torch.autograd import anomaly_mode
from torch.optim import optimizer as optimizers
from torch.utils.data._utils import fetch
import torch.profiler, warnings

torch.set_num_threads(1)
net = torch.nn.Linear(64, 10)
sgd = torch.optim.SGD(net.parameters(), lr=0.1)
data = TensorDataset(torch.randn(800, 64), torch.randint(0, 10, (800,)))

def step(batch):
    sgd.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(batch[0]), batch[1])
    loss.backward()
    sgd.step()

def train(steps):
    for count, batch in enumerate(DataLoader(data, batch_size=8)):
        if count == steps:
            return
        step(batch)

def state():
    places = [loading._BaseDataLoaderIter, fetch._BaseDatasetFetcher, type(torch.autograd.Variable), DataLoader,
              torch.profiler.profile, autocast_mode.autocast, warnings.WarningMessage, torch.autograd.profiler,
              anomaly_mode.detect_anomaly, anomaly_mode.set_detect_anomaly, torch.autograd.profiler.record_function]
    return {
        "attributes": [sorted((name, id(value)) for name, value in vars(one).items()) for one in places],
        "optimizers": [len(optimizers._global_optimizer_pre_hooks), len(optimizers._global_optimizer_post_hooks)],
        "native": type(torch._C).__name__ + str(type(torch._C) is type(sys)),
        "gc": len(gc.callbacks), "exits": list(map(str, exits)), "finders": list(map(str, sys.meta_path)),
        "signals": [str(signal.getsignal(number)) for number in range(1, 32)],
        "trace": [str(sys.gettrace()), str(sys.getprofile())], "threads": threading.active_count(),
        "environment": dict(os.environ), "recording": torch.autograd._profiler_enabled(),
    }

train(3)
tempfile.TemporaryDirectory().cleanup()  # the standard library places a function of its own with the first
exits = []  # Python tells how many were ever registered, not what they are
register, unregister = atexit.register, atexit.unregister
atexit.register = lambda call, *words: (exits.append(call), register(call, *words))[0]
atexit.unregister = lambda call: (exits.remove(call), unregister(call))[0]
def show(**values):
    print("\\n" + json.dumps(values))
"""


def run(code: str, folder: Path, **environment: str) -> tuple[dict[str, Any], str]:
    """What the script shows last, and its standard error."""
    script = folder / "block.py"
    script.write_text(SCRIPT + code)
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str, Path]:
    """Two profiles in one process: of a block, and of a function and its batches without an end."""
    folder = tmp_path_factory.mktemp("twice")
    code = """
import itertools
before = state()
with advisor.profile(steps=5, calibrate=False) as first:
    within = state()
    train(60)
after = state()
second = advisor.profile(step, itertools.repeat(data[:8]), steps=4, calibrate=False, output="kept")
again = state()
frame = first.to_pandas()
show(same=[after == before, again == before, within == before],
     differs=[key for key in before if before[key] != after[key] or before[key] != again[key]],
     steps=[first.report.steps.count, second.report.steps.count],
     sources=[first.report.steps.source, second.report.steps.source],
     lines=[[row.name for row in one.report.lines] for one in (first, second)],
     columns=list(frame.columns), rows=[len(frame), len(first.findings)],
     html=first._repr_html_(), text=repr(first), page=second.page, command=list(first.report.run.command))
"""
    found, said = run(code, folder)
    return found, said, folder


def test_every_hook_is_removed(twice: tuple[dict[str, Any], str, Path]) -> None:
    found, said, _ = twice
    assert found["differs"] == []
    assert found["same"] == [True, True, False]  # the last: a look that sees no hooks would see none left behind
    assert said == ""


def test_both_profiles_have_their_steps_and_lines(twice: tuple[dict[str, Any], str, Path]) -> None:
    found, _, _ = twice
    assert found["steps"] == [5, 4]
    assert found["sources"] == ["loader", "optimizer"]
    for lines in found["lines"]:
        assert any(line.startswith("block.py:") and line.endswith(" step") for line in lines)
        assert all(line.startswith("block.py:") for line in lines)
    assert found["command"] == ["block.py"]


def test_the_report_as_a_table_as_text_and_as_html(twice: tuple[dict[str, Any], str, Path]) -> None:
    found, _, _ = twice
    assert found["columns"][:5] == ["rule", "severity", "low_us", "high_us", "basis"]
    assert found["rows"][0] == found["rows"][1]
    assert "per step" in found["text"]
    assert found["html"].startswith("<iframe srcdoc=")
    assert 'src="' not in found["html"]
    assert "http-equiv=&quot;Content-Security-Policy&quot;" in found["html"]


def test_nothing_is_written_but_what_output_names(twice: tuple[dict[str, Any], str, Path]) -> None:
    found, _, folder = twice
    assert sorted(path.name for path in folder.iterdir()) == ["block.py", "kept"]
    assert {"report.html", "report.json", "run.json"} <= {path.name for path in (folder / "kept").iterdir()}
    assert (folder / "kept" / "report.html").read_text("utf-8") == found["page"]


@pytest.mark.complete
def test_an_exception_passes_unchanged_and_what_was_recorded_is_kept(tmp_path: Path) -> None:
    code = """
before, mine = state(), KeyboardInterrupt("mine")
def interrupted():
    with advisor.profile(steps=3, calibrate=False) as one:
        globals()["block"] = one
        train(60)
        raise mine
try:
    interrupted()
except BaseException as failure:
    names = []
    at = failure.__traceback__
    while at is not None:
        names.append(at.tb_frame.f_code.co_name)
        at = at.tb_next
    same = failure is mine and failure.__context__ is None
show(same=same, names=names, left=state() == before, steps=block.report.steps.count)
"""
    found, said = run(code, tmp_path)
    assert found == {"same": True, "names": ["<module>", "interrupted"], "left": True, "steps": 3}
    assert said == ""


def test_mistakes_are_one_line_each(tmp_path: Path) -> None:
    code = """
said = []
def of(call):
    try:
        call()
    except advisor.errors.AdvisorError as failure:
        said.append(str(failure))
import advisor.errors
with advisor.profile() as short:
    of(lambda: advisor.profile().__enter__())
    of(lambda: short.report)
    train(4)
of(lambda: short.report)
of(lambda: short.__enter__())
of(lambda: advisor.profile(step))
of(lambda: advisor.profile(steps=-1))
with advisor.profile() as empty:
    pass
of(lambda: empty.report)
show(said=said, html=short._repr_html_(), text=repr(short))
"""
    found, said = run(code, tmp_path)
    active, open_, short, used, half, negative, empty = found["said"]
    assert active == "another advisor.profile is active in this process; exit its block first"
    assert open_.endswith("exit the `with` block first")
    assert short.startswith("there is no report: the loop ended after 4 steps, and ")
    assert used.startswith("this profile has already been used")
    assert half.startswith("pass a function and its batches")
    assert negative == "steps=-1, warmup=None: must not be negative"
    assert "no training step was detected in this block" in empty
    assert said == f"advisor: {short}\nadvisor: {empty}\n"
    assert short in found["html"]
    assert short in found["text"]
    assert list(tmp_path.iterdir()) == [tmp_path / "block.py"]


def test_without_torch_the_block_runs_and_why_there_is_no_report_is_said(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["torch"] = None  # as where it is not installed
import advisor
with advisor.profile() as run:
    print("the block ran")
print(run)
"""
    (tmp_path / "block.py").write_text(code)
    done = subprocess.run([sys.executable, "block.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    ran, shown = done.stdout.splitlines()
    why = done.stderr.removeprefix("advisor: ").rstrip()
    assert ran == "the block ran"
    assert why.startswith("there is no report: torch could not be imported (")
    assert shown == f"<advisor.profile: {why}>"


@pytest.mark.complete
def test_a_report_that_fails_is_said_and_the_block_goes_on(tmp_path: Path) -> None:
    code = """
import advisor.errors
with advisor.profile(steps=3, calibrate=False, output="block.py") as blocked:
    train(60)
with advisor.profile(steps=3, calibrate=False) as broken:
    train(60)
from pathlib import Path
Path("pyproject.toml").write_text("[tool.torch-advisor]\\nselekt = []\\n")
said = []
for one in (blocked, broken):
    try:
        one.report
    except advisor.errors.AdvisorError as failure:
        said.append(str(failure))
show(said=said, html=broken._repr_html_(), text=repr(broken))
"""
    found, said = run(code, tmp_path)
    blocked, broken = found["said"]
    assert blocked == "block.py is a file; name another folder with --output"
    assert said == f"advisor: {blocked}\n"
    assert "selekt" in broken
    assert "selekt" in found["html"]
    assert "selekt" in found["text"]


@pytest.mark.complete
def test_under_advisor_run_the_block_leaves_capture_alone(tmp_path: Path) -> None:
    script = tmp_path / "block.py"
    script.write_text(SCRIPT + "with advisor.profile() as run:\n    train(100)\nprint(repr(run))\n")
    command = [sys.executable, "-m", "advisor", "run", "--no-calibrate", "--steps", "5", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "`advisor run` already profiles this process" in done.stdout
    report = json.loads((tmp_path / "advisor-report" / "report.json").read_text())
    assert report["steps"]["count"] == 5


def test_importing_advisor_does_not_import_torch() -> None:
    code = "import sys, advisor; advisor.profile; advisor.load_ipython_extension; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
