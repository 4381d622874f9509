"""Bounded and safe: whatever goes wrong on our side, the training ends as it would have."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from capture_runs import COMMAND, SCRIPTS, advised, bare, capture, environment
from tiers import complete

from advisor import cli
from advisor.capture.launcher import launch

pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.mark.complete
def test_a_vanished_folder_costs_the_report_and_nothing_else(tmp_path: Path) -> None:
    """The folder for the traces is deleted while the script runs: it ends well, we say so once and return 4."""
    script = tmp_path / "vanishes.py"
    script.write_text(
        "import json, os, shutil\nshutil.rmtree(json.loads(os.environ['TORCH_ADVISOR_CAPTURE'])['folder'])\n"
        + (SCRIPTS / "ends.py").read_text()
    )
    done = advised(str(script), "return", cwd=tmp_path)
    assert done.out.endswith(b"at exit\n")
    assert done.status == 4
    assert len(done.err.decode().splitlines()) == 1, done.err
    assert done.err.startswith(b"advisor: ")
    assert not (tmp_path / "advisor-report").exists()


@pytest.mark.complete
@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs a POSIX system")
def test_an_output_that_cannot_be_written(tmp_path: Path) -> None:
    """A file stands where the report's folder should go: one line, the script's output whole, nothing overwritten."""
    (tmp_path / "report").write_text("mine")
    done = advised("--output", "report/inner", str(SCRIPTS / "ends.py"), "return", cwd=tmp_path)
    assert done.status in (2, 4)
    assert done.out.endswith(b"at exit\n")
    assert len(done.err.decode().splitlines()) == 1, done.err
    assert (tmp_path / "report").read_text() == "mine"


@pytest.mark.complete
def test_a_full_disk_is_noticed_before_it_fills(tmp_path: Path) -> None:
    """No window is opened with too little room; the note says how much is asked for."""
    script = tmp_path / "full.py"
    script.write_text(
        "import shutil\nfrom collections import namedtuple\n"
        "shutil.disk_usage = lambda path: namedtuple('u', 'total used free')(100, 99, 1)\n"
        + (SCRIPTS / "ends.py").read_text()
    )
    done = capture(tmp_path / "out", script, "return")
    assert done.status == 0
    assert done.rank["files"] == []
    assert "256 MB" in done.rank["notes"][0]


@pytest.mark.complete
def test_a_disk_that_fills_while_the_trace_is_written(tmp_path: Path) -> None:
    """Files may grow to 16 KB only, as on a full disk: the training ends well, and the missing trace is said."""
    script = tmp_path / "full.py"
    script.write_text(
        "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (16384, 16384))\n" + (SCRIPTS / "ends.py").read_text()
    )
    done = capture(tmp_path / "out", script, "return")
    assert done.status == 0, done.err
    assert done.rank["files"] == []
    assert done.rank["notes"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["run.json"]


@pytest.mark.complete
def test_two_runs_at_once_never_mix(tmp_path: Path) -> None:
    """Same script, same folder, same moment: two whole reports, one of them moved aside."""
    shutil.copy(SCRIPTS / "ends.py", tmp_path)
    command = [*COMMAND, "run", "--quiet", "ends.py", "return"]
    running = [
        subprocess.Popen(command, cwd=tmp_path, env=environment(None), stdout=subprocess.DEVNULL) for _ in range(2)
    ]
    assert [process.wait(120) for process in running] == [0, 0]
    folders = sorted(path for path in tmp_path.glob("advisor-report*"))
    assert [path.name for path in folders] == ["advisor-report", "advisor-report.1"]
    pids = set()
    for folder in folders:
        (rank,) = json.loads((folder / "run.json").read_text())["ranks"]
        assert sorted(path.name for path in folder.glob("*.gz")) == sorted(file["path"] for file in rank["files"])
        pids.add(rank["pid"])
    assert len(pids) == 2


@pytest.mark.complete
def test_a_worker_that_dies_is_the_scripts_affair(tmp_path: Path) -> None:
    """A loader worker is killed: the error is torch's, the status the script's, and we add nothing."""
    script = tmp_path / "dies.py"
    script.write_text(
        "import os, signal, sys, time\nimport torch\nfrom torch.utils.data import DataLoader, Dataset\n"
        "class Deadly(Dataset):\n    def __len__(self): return 64\n"
        "    def __getitem__(self, index):\n        if index == 40: os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return torch.ones(4)\n"
        "model = torch.nn.Linear(4, 1)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "try:\n    for batch in DataLoader(Deadly(), batch_size=2, num_workers=1):\n"
        "        model(batch).sum().backward()\n        optimizer.step()\n"
        # Whichever comes first: the end of the pipe, or the error that torch raises where SIGCHLD finds the script.
        "except (RuntimeError, OSError, EOFError):\n    try: time.sleep(1)\n    except RuntimeError: pass\n"
        "    print('torch told the script')\n    sys.exit(9)\n"
    )
    done = capture(tmp_path / "out", script, warmup=2, steps=4)
    assert (done.status, done.out) == (9, "torch told the script\n"), done.err


@pytest.mark.complete
def test_a_script_killed_at_once_leaves_what_was_closed(tmp_path: Path) -> None:
    """SIGKILL after the window: its trace is there, whole, and we end by the same signal."""
    script = tmp_path / "killed.py"
    script.write_text(
        "import os, signal\nimport torch\nmodel = torch.nn.Linear(4, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for number in range(60):\n    model(torch.ones(2, 4)).sum().backward()\n    optimizer.step()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = advised("--quiet", str(script), cwd=tmp_path)
    assert done.status == -signal.SIGKILL
    (rank,) = json.loads((tmp_path / "advisor-report" / "run.json").read_text())["ranks"]
    assert not any(file["partial"] for file in rank["files"])


def interrupted(*command: str, cwd: Path) -> tuple[int, str]:
    """Status and stderr of a command that gets SIGINT with its whole group, as from a terminal, once it is inside."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=environment(None),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"inside\n"
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    return process.returncode, err.decode()


@pytest.mark.complete
def test_ctrl_c_in_the_window_at_a_terminal_group(tmp_path: Path) -> None:
    """One KeyboardInterrupt, the bare script's end, and the window is kept."""
    script = tmp_path / "waits.py"
    script.write_text(
        "import sys, time\nimport torch\nmodel = torch.nn.Linear(4, 1)\ninside = 0\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for number in range(100000):\n    model(torch.ones(2, 4)).sum().backward()\n    optimizer.step()\n"
        "    inside += sys.argv[1] == 'bare' or torch.autograd._profiler_enabled()\n"
        "    if inside == 20: print('inside', flush=True)\n    time.sleep(0.002)\n"
    )
    # By the signal, as a rule; where a library runs Python while the interpreter ends, CPython itself ends with 1.
    bare_status, _ = interrupted(sys.executable, str(script), "bare", cwd=tmp_path)
    assert bare_status in (-signal.SIGINT, 1)
    options = ("--quiet", "--warmup", "1", "--steps", "100000")
    status, err = interrupted(*COMMAND, "run", *options, str(script), "captured", cwd=tmp_path)
    assert err.count("KeyboardInterrupt") == 1, err
    assert status == bare_status
    (rank,) = json.loads((tmp_path / "advisor-report" / "run.json").read_text())["ranks"]
    (file,) = [one for one in rank["files"] if one["role"] == "profile"]
    assert file["partial"]
    assert file["steps"]


def test_a_signal_to_the_group_arrives_once_and_one_to_us_alone_is_passed_on(tmp_path: Path) -> None:
    """Each of four signals reaches the script exactly once, whoever it was sent to."""
    script = tmp_path / "counts.py"
    script.write_text(
        "import os, signal, time\nsignal.signal(signal.SIGUSR1, lambda *_: print('signal', flush=True))\n"
        "print('ready', flush=True)\nwhile not os.path.exists('stop'): time.sleep(0.01)\n"
    )
    process = subprocess.Popen(
        [*COMMAND, "run", "--quiet", str(script)],
        cwd=tmp_path,
        env=environment(None),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    for send in (os.killpg, os.killpg, os.kill, os.killpg):
        send(process.pid, signal.SIGUSR1)
        assert process.stdout.readline() == b"signal\n"
        time.sleep(0.3)  # a second one of the same signal would come now
    (tmp_path / "stop").touch()
    out, _ = process.communicate(timeout=60)
    assert out == b""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no script given"),
        (("--",), "no script given"),
        (("no_such_script.py",), "no_such_script.py"),
        (("--", "no-such-launcher", "x.py"), "no-such-launcher"),
        (("--format", "yaml", "x.py"), "yaml"),
        (("--select", "no-such-rule", "x.py"), "no-such-rule"),
        (("-m",), "needs a module"),
        (("--python", "no-such-python", "x.py"), "no-such-python"),
        (("folder",), "__main__.py"),
        (("--steps", "0", "x.py"), "at least 1"),
        (("x.ipynb",), "notebook"),
        (("x.sh",), "advisor run -- bash x.sh"),
    ],
)
def test_nothing_was_started(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    said: str,
) -> None:
    """Usage: one clear line, status 2, and no folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name in ("x.py", "x.ipynb", "x.sh"):
        (tmp_path / name).write_text("raise SystemExit('never run')")
    try:
        status = cli.main(["run", *words])
    except SystemExit as ended:
        status = int(str(ended.code))
    assert status == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert said in message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "x.ipynb", "x.py", "x.sh"]


def test_no_torch_in_the_scripts_interpreter(tmp_path: Path) -> None:
    """Another interpreter without torch: 2, and what to install."""
    bare_python = Path(sys.base_prefix) / "bin" / "python3"
    if not bare_python.is_file() or str(bare_python) == sys.executable:
        pytest.skip("no second interpreter here")
    asked = subprocess.run([bare_python, "-c", "import torch"], capture_output=True, check=False)
    if asked.returncode == 0:
        pytest.skip("the second interpreter has torch too")
    (tmp_path / "x.py").write_text("")
    done = advised("--python", str(bare_python), "x.py", cwd=tmp_path)
    assert done.status == 2
    assert b"pip install torch" in done.err


def test_no_training_is_no_failure_of_ours(tmp_path: Path) -> None:
    """A script that trains nothing: its own status, one line on stderr, nothing with --quiet, no folder."""
    (tmp_path / "x.py").write_text("print('hello')")
    done = advised("x.py", cwd=tmp_path)
    assert (done.status, done.out) == (0, b"hello\n")
    assert done.err.decode().splitlines() == [
        "advisor: nothing was profiled: no training step was detected (backward pass, optimizer step or DataLoader)"
    ]
    assert not (tmp_path / "advisor-report").exists()


# What such a script did before: a window of time is open at its first step, none was opened, or one was closed.
_BEFORE = ("time.sleep(1.4)", "", "while time.perf_counter() < began + 8:\n    torch.ones(64, 64) @ torch.ones(64, 64)")


@pytest.mark.complete
@pytest.mark.parametrize("before", [_BEFORE[0], *complete(*_BEFORE[1:])])
def test_a_script_of_two_steps_is_told_how_many_it_takes(tmp_path: Path, before: str) -> None:
    """Its own status, and what the steps lacked; they are not denied, nor is what came before taken for them."""
    (tmp_path / "x.py").write_text(
        f"import time, torch\nbegan = time.perf_counter()\n{before}\n"
        "layer = torch.nn.Linear(4, 4)\noptimizer = torch.optim.SGD(layer.parameters(), lr=0.1)\n"
        "for step in range(2):\n    layer(torch.ones(2, 4)).sum().backward()\n    optimizer.step()\n"
    )
    done = advised("x.py", cwd=tmp_path)
    assert (done.status, done.out) == (0, b"")
    # Before it may stand that a window of time was complete.
    assert done.err.decode().splitlines()[-1] == (
        "advisor: nothing was profiled: the script ended after 2 steps, before they were timed and recorded; "
        "run 30 or more"
    )
    assert not (tmp_path / "advisor-report").exists()


@pytest.mark.complete
def test_a_child_that_outlives_the_script_is_not_waited_for(tmp_path: Path) -> None:
    """As the compile workers of torch do: we end with the script, and the child lives on."""
    script = tmp_path / "leaves.py"
    script.write_text(
        "import subprocess, sys, torch\nmodel = torch.nn.Linear(4, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nquiet = subprocess.DEVNULL\n"
        "child = subprocess.Popen(['sleep', '300'], stdin=quiet, stdout=quiet, stderr=quiet)\n"
        "for _ in range(60):\n    model(torch.ones(2, 4)).sum().backward()\n    optimizer.step()\n"
        "print(child.pid)\n"
    )
    done = advised("--quiet", str(script), cwd=tmp_path)
    assert done.status == 0, done.err
    os.kill(int(done.out), signal.SIGKILL)  # which would fail if it had ended
    assert (tmp_path / "advisor-report" / "report.html").is_file()


def test_the_wait_passes_the_status_on() -> None:
    """A status is a status, a signal a signal."""
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.exit(77)"])
    assert launch.wait(process) == launch.Ended(77)
    process = subprocess.Popen([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
    assert launch.wait(process) == launch.Ended(137, 9)


@pytest.mark.complete
def test_the_folder_can_be_analysed_while_the_script_goes_on(tmp_path: Path) -> None:
    """A long training: traces and run.json are there soon after the window; one line says so."""
    script = tmp_path / "long.py"
    script.write_text(
        "import pathlib, time\nimport torch\nmodel = torch.nn.Linear(4, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "while not pathlib.Path('enough').exists():\n    model(torch.ones(2, 4)).sum().backward()\n"
        "    optimizer.step()\n    time.sleep(0.01)\nprint('trained')\n"
    )
    process = subprocess.Popen(
        [*COMMAND, "run", str(script)],
        cwd=tmp_path,
        env=environment(None),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        home = tmp_path / "advisor-report"
        until = time.monotonic() + 60
        while not (home / "run.json").exists() and time.monotonic() < until:
            time.sleep(0.1)
        before = json.loads((home / "run.json").read_text())
        assert before["exit_status"] is None
        asked = bare(*COMMAND, "analyze", "advisor-report", "--format", "json", cwd=tmp_path)
        report = json.loads(asked.out)
        assert (asked.status, report["steps"]["source"]) == (0, "optimizer"), asked.err
        assert any(one["id"] == "run-unfinished" for one in report["health"])
        assert process.poll() is None
        # Another run in the same place moves ours aside; ours finds it again.
        home.rename(tmp_path / "advisor-report.1")
    finally:
        (tmp_path / "enough").touch()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, b"trained\n"), err
    assert sum(b"`advisor analyze advisor-report` works" in line for line in err.splitlines()) == 1, err
    assert not home.exists()
    after = json.loads((tmp_path / "advisor-report.1" / "run.json").read_text())
    assert after["exit_status"] == 0
    # Forward and the gradient of the weight: 2 x 4 by 4 x 1, each number a product and a sum.
    (module,) = after["ranks"][0]["model"]["modules"]
    layer = {"path": "Linear", "kind": "Linear", "root": True}
    assert module == layer | {"parameters": 5, "parameter_bytes": 20, "flops": 2 * 16.0}
    assert after["ranks"][0]["steps"]["count"] > before["ranks"][0]["steps"]["count"]
    assert (tmp_path / "advisor-report.1" / "report.html").is_file()
    assert not list((tmp_path / "advisor-report.1").glob(".*"))
