"""Step time side by side, with real processes: turns, pairs, failures. No duration is asserted."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from advisor import cli
from advisor.gate import pairs
from advisor.gate.files import GateError
from advisor.gate.pairs import Layout, Look, Pair, Side
from advisor.gate.turns import EndedError, Runner, environment, told

needs_torch = pytest.mark.torch

TRAIN = """
import torch
from torch import nn

torch.set_num_threads(1)
model = nn.Linear(8, 2)
data = torch.utils.data.TensorDataset(torch.randn({samples}, 8))
for epoch in range(2):
    for (x,) in torch.utils.data.DataLoader(data, batch_size=4):
        model(x).sum().backward()
        {added}
"""


def train(folder: Path, *, samples: int = 2000, added: str = "pass", name: str = "train.py") -> Side:
    """A side that trains a tiny model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(TRAIN.format(samples=samples, added=added))
    return Side("head" if folder.name == "head" else "base", (sys.executable, name), folder, environment())


@pytest.fixture(autouse=True)
def _torch(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("torch"):
        pytest.importorskip("torch")


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    """A training that stands at the start of a step."""
    side = train(tmp_path / "base")
    with Runner(side.command, side.folder, side.env) as process:
        process.ready()
        yield process


def state(pid: int) -> str:
    """The scheduler's letter for a process."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@needs_torch
def test_a_side_runs_only_in_its_turns(runner: Runner) -> None:
    assert runner.source == "loader"
    time.sleep(0.05)  # the signal that stops it may still be on its way
    assert state(runner.process.pid) == "T"
    assert runner.turn(3) > 0
    time.sleep(0.05)
    assert state(runner.process.pid) == "T"
    assert runner.resident_bytes() > 10_000_000
    assert runner.device_bytes() == (0, 0)


# Holds 400 MB before its first step, which do not count, and 200 MB for a moment in its 15th, which do.
PEAKS = """
import torch
from torch import nn

large = bytearray(b"1" * 400_000_000)
del large
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1000):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    if step == 15:
        large = bytearray(b"1" * 200_000_000)
        del large
"""


@needs_torch
@pytest.mark.complete
def test_the_peak_is_that_of_the_steps(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PEAKS)
    with Runner((sys.executable, "train.py"), tmp_path, environment()) as process:
        process.ready()
        process.turn(3)
        before, now = process.peak_bytes(), process.resident_bytes()
        assert before < now + 50_000_000
        process.turn(20)
        assert before + 150_000_000 < process.peak_bytes() < before + 600_000_000


@pytest.mark.complete
@needs_torch
def test_a_script_that_runs_out_of_steps_ends_the_turns(tmp_path: Path) -> None:
    side = train(tmp_path / "base", samples=40)  # two epochs of ten steps
    with Runner(side.command, side.folder, side.env) as process:
        process.ready()
        times: list[float] = []
        with pytest.raises(EndedError) as ended:
            times.extend(process.turn(1) for _ in range(100))
        assert ended.value.status == 0


@needs_torch
def test_the_line_that_says_why_a_script_failed() -> None:
    alone = "epoch 1\nTraceback (most recent call last):\n  File ...\nValueError: no data\n"
    assert told(alone) == "ValueError: no data"
    rank = "[rank1]: RuntimeError: shapes differ\nW1124 a worker failed\n"
    launcher = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n=====\ntrain.py FAILED\n=====\n"
    assert told(rank + launcher) == "[rank1]: RuntimeError: shapes differ"
    assert told("  traceback : Signal 6 (SIGABRT) received by PID 9\n=======\n\n").endswith("received by PID 9")
    assert told("12 0.5\n") == ""


# From its 21st step on rank 1 is far from a collective for a second, where nothing of rank 0 holds it up.
RANKS = """
import time
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
model = DistributedDataParallel(nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10_000):
    until = time.time() + (rank and step > 20)
    while time.time() < until:
        sum(range(1000))
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
"""


@needs_torch
@pytest.mark.complete
def test_every_rank_of_a_launcher_stands_still_and_ends(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RANKS)
    command = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py")
    with Runner(command, tmp_path, environment()) as process:
        process.ready()
        process.turn(22)
        time.sleep(0.05)
        pids = [pid for pid in numbers() if at_home(pid) == tmp_path]
        assert len(pids) >= 3
        assert {state(pid) for pid in pids} == {"T"}
        assert process.resident_bytes() > 2.5 * resident(process.process.pid)
    until = time.monotonic() + 10
    while (alive := set(pids) & set(numbers())) and time.monotonic() < until:
        time.sleep(0.1)
    assert not alive


def numbers() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def at_home(pid: int) -> Path | None:
    try:
        return Path(f"/proc/{pid}/cwd").readlink()
    except OSError:
        return None


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_no_process_survives_its_controller(tmp_path: Path) -> None:
    side = train(tmp_path / "base", samples=400_000)
    code = f"""
        import os, sys
        from pathlib import Path
        from advisor.gate.turns import Runner, environment
        runner = Runner({side.command!r}, Path({str(side.folder)!r}), environment())
        runner.ready()
        runner.turn(1)
        print(runner.process.pid, flush=True)
        os.kill(os.getpid(), {int(signal.SIGKILL)})
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False
    )
    pid = int(done.stdout)
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists() or state(pid) == "Z":
            return
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("the stopped training is still there after ten seconds")


@needs_torch
@pytest.mark.parametrize("mode", ["lockstep", pytest.param("blocks", marks=pytest.mark.complete)])
def test_a_pair_sees_a_large_change(tmp_path: Path, mode: pairs.Mode) -> None:
    base = train(tmp_path / "base")
    head = train(tmp_path / "head", added="import time; time.sleep(0.01)")
    pair = pairs.measure(base, head, Layout(mode, 1, 20, 2), random.Random(1))
    assert pair.turns == 20
    # Ten milliseconds more per step: the change is in the script, not in the machine.
    assert pair.head_us - pair.base_us > 8_000
    assert pair.ratio > 0


@needs_torch
@pytest.mark.complete
def test_a_script_that_ends_early_is_started_again(tmp_path: Path) -> None:
    base = train(tmp_path / "base", samples=40)  # two epochs of ten steps
    head = train(tmp_path / "head", samples=40)
    seen: list[int] = []
    layout = Layout("lockstep", 1, 20, 2, starts=6)
    pair = pairs.measure(base, head, layout, random.Random(1), lambda index, _: seen.append(index))
    assert pair.turns == 20
    assert len(seen) in (4, 6)  # the ends of epochs are no steps: a start gives about 15


@needs_torch
@pytest.mark.complete
def test_a_side_that_fails_or_never_steps_is_named(tmp_path: Path) -> None:
    broken = train(tmp_path / "head", added="raise ValueError('no such loss')")
    with pytest.raises(GateError, match=r"the head failed with status 1: ValueError: no such loss") as failure:
        pairs.look(broken, 2, None)
    assert failure.value.exit_code == 4
    (tmp_path / "head" / "train.py").write_text("import torch\nprint('done')\n")
    with pytest.raises(GateError, match=r"the head ended before its second training step.*: done"):
        pairs.look(broken, 2, None)
    short = train(tmp_path / "base", samples=20)
    with pytest.raises(GateError, match="give it more batches"):
        pairs.measure(short, short, Layout("lockstep", 1, 60, 2), random.Random(1))


@pytest.mark.complete
@needs_torch
def test_a_side_that_imports_from_the_users_tree_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "helper.py").write_text("x = 1\n")
    side = train(tmp_path / "base", added="import sys; sys.path.append('../tree'); import helper")
    seen = pairs.look(side, 2, tmp_path / "tree")
    assert [Path(file).name for file in seen.strays] == ["helper.py"]
    assert pairs.look(side, 2, tmp_path / "elsewhere").strays == ()


def test_the_layout_follows_step_and_memory() -> None:
    def look(step_us: float, fits: bool = True, device: bool = False) -> Look:
        return Look(step_us, fits, device, "loader", ())

    assert pairs.settle([look(50_000)], 60, 10, None) == Layout("lockstep", 1, 60, 10)
    assert pairs.settle([look(900), look(1_000)], 60, 10, None).steps_per_turn == 6
    assert pairs.settle([look(50_000, device=True)], 60, 10, None).steps_per_turn == 5
    assert pairs.settle([look(50_000), look(50_000, fits=False)], 60, 10, None).mode == "blocks"
    assert pairs.settle([look(50_000, fits=False)], 60, 10, "lockstep").mode == "lockstep"


# -- the whole gate, with pairs that are given instead of measured


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Log ratios of the pairs to come, self-test first; the sides are looked at, not run."""
    ratios: list[float] = []

    def measure(*_: object) -> Pair:
        ratio = ratios.pop(0)
        return Pair(ratio, ratio, 8000.0, 8000.0 * 2.718281828**ratio, 60, 1)

    monkeypatch.setattr(pairs, "measure", measure)
    monkeypatch.setattr(pairs, "look", lambda *_: Look(8000.0, True, False, "loader", ()))
    return ratios


def commands(capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, object]]:
    """Runs `gate --base-command --head-command` on two scripts that exist."""
    status = cli.main(["gate", "--base-command", __file__, "--head-command", __file__, "--format", "json", "--quiet",
                       "--no-explain", *more])  # fmt: skip
    return status, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("pairs_given", "status", "verdict", "count"),
    [
        ([0.001, -0.002, 0.001, -0.001, 0.002, 0.0], 0, "pass", 6),
        ([0.061, 0.058, 0.06, 0.062, 0.059, 0.06], 1, "regression", 6),
        ([-0.061, -0.058, -0.06, -0.062, -0.059, -0.06], 0, "pass", 6),
        ([0.2, -0.15, 0.1, -0.2, 0.15, -0.1, 0.2, -0.2] * 2, 3, "inconclusive", 16),
    ],
)
def test_verdicts_of_the_whole_gate(
    given: list[float],
    capsys: pytest.CaptureFixture[str],
    pairs_given: list[float],
    status: int,
    verdict: str,
    count: int,
) -> None:
    given.extend([0.002, -0.001, 0.001, -0.002, *pairs_given])
    code, document = commands(capsys)
    assert (code, document["verdict"]) == (status, verdict)
    step = document["step_time"]
    assert isinstance(step, dict)
    assert step["pairs"] == count
    assert not given
    if pairs_given[0] < 0:
        assert "it is faster by the same rule" in str(document["reason"])


def test_a_machine_too_noisy_is_told_before_the_comparison(
    given: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    given.extend([0.5, -0.4, 0.6, -0.5])
    code, document = commands(capsys)
    assert (code, document["verdict"]) == (3, "inconclusive")
    assert "too noisy" in str(document["notes"])


@pytest.mark.parametrize(("words", "status"), [((), 1), (("--mode", "blocks"), 3)])
def test_a_clock_held_down_is_said_and_decides_nothing_without_turns(
    given: list[float],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    status: int,
) -> None:
    given.extend([0.002, -0.001, 0.001, -0.002, 0.061, 0.058, 0.06, 0.062, 0.059, 0.06])
    cool = pairs.measure
    monkeypatch.setattr(pairs, "measure", lambda *words: replace(cool(*words), held=True))
    code, document = commands(capsys, *words)
    assert code == status
    assert "throttling reduced a clock during 10 of 10 pairs" in str(document["notes"])


def test_a_change_in_the_heads_process_is_judged_like_any_head(
    given: list[float], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given.extend([0.002, -0.001, 0.001, -0.002, -0.061, -0.058, -0.06, -0.062, -0.059, -0.06])
    quick, sides = pairs.measure, set()

    def measure(base: Side, head: Side, *rest: object) -> Pair:
        for one in (base, head):
            sides.add((one.name, str(dict(one.settings)), one.env.get("SLOW", "unset")))
        return quick(base, head, *rest)  # type: ignore[arg-type]

    monkeypatch.setenv("SLOW", "1")
    monkeypatch.setattr(pairs, "measure", measure)
    words = ["--head-with", "loader:num_workers=2", "--head-with", "environment:SLOW=None"]
    status = cli.main(["gate", *words, "--format", "json", "--quiet", "--", __file__])
    document = json.loads(capsys.readouterr().out)
    assert (status, document["verdict"]) == (0, "pass")
    assert document["head"] == "loader:num_workers=2 environment:SLOW=None"
    # The process is told of the variable, too, so that it can say where the script sets it itself.
    changes = [("loader", {"num_workers": 2}), ("environment", {"SLOW": None})]
    inside = {"treatments": [{"name": name, "arguments": arguments} for name, arguments in changes]}
    assert sides == {("base", "{}", "1"), ("head", str(inside), "unset")}
