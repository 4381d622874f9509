"""Changes tried on scripts that are not one plain process: ranks of a launcher, forks, and ends after a few steps."""

from __future__ import annotations

import random
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.gate.pairs import Side
from advisor.gate.turns import EndedError, Runner, environment
from advisor.model import Treatment
from advisor.trying.pairing import Measured, layout_of, measurer
from advisor.trying.session import Session

# The time that a step sleeps is a variable of the environment, so that a change of it has a known worth.
STEP = """
    optimizer.zero_grad()
    time.sleep(float(os.environ.get("PAUSE", "0.03")))
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
"""
START = """
import os, time
import torch
from torch import nn

torch.set_num_threads(1)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
RANKS = (
    START
    + """
torch.distributed.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10_000):"""
    + STEP
)
# A child that trains as well, and one that ends at once, every few steps.
FORKS = (
    START
    + """
if os.fork() == 0:
    for _ in range(20):
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
    os._exit(0)
for number in range(10_000):
    if number % 10 == 5:
        child = os.fork()
        if child == 0:
            os._exit(3)
        os.waitpid(child, 0)"""
    + STEP
)
SHORT = START + "for _ in range(40):" + STEP
PLAIN = ("train.py",)
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py")


def pair_of(folder: Path, words: tuple[str, ...], script: str) -> Measured:
    """One pair: the script as it is, and with a tenth of the pause."""
    pytest.importorskip("torch")
    (folder / "train.py").write_text(script)
    base = Side("base", (sys.executable, *words), folder, environment())
    layout, _, _ = layout_of(base)
    measure = measurer(replace(layout, turns=8), random.Random(0))
    session = Session(base, measure, 3600.0, lambda _text: None)
    return measure(base, session.side_of(base, (Treatment("environment", {"PAUSE": "0.003"}),)))


WRAPPED = (
    START
    + """
torch.distributed.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 2), nn.BatchNorm1d(2)))
logged = model._get_ddp_logging_data()
with open(f"rank-{torch.distributed.get_rank()}", "w") as file:
    print(logged["bucket_cap_bytes"], model.gradient_as_bucket_view, model.static_graph, file=file)
    print(logged["broadcast_buffers"], file=file)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(torch.distributed.get_rank())
for _ in range(10_000):"""
    + STEP
)


@pytest.mark.torch
@pytest.mark.complete
def test_arguments_of_ddp_reach_both_ranks(tmp_path: Path) -> None:
    """All that are tried of DistributedDataParallel at once: the same losses, each once, and nothing is left of a rank.

    A static graph reads autograd's engine within the first backward pass, which is none of its own.
    """
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(WRAPPED)
    arguments = {"bucket_cap_mb": 1, "gradient_as_bucket_view": True, "static_graph": True, "broadcast_buffers": False}
    seeds = {"name": "seeds", "arguments": {"value": 0}}
    losses, said = [], []
    for wanted in ([seeds], [seeds, {"name": "ddp", "arguments": arguments}]):
        settings = {"treatments": wanted, "losses": 100, "whole": True}
        with Runner((sys.executable, *TORCHRUN), tmp_path, environment(), settings) as process:
            process.ready()
            process.turn(20)
            facts = process.facts()
        losses.append(facts["losses"][:20])
        said.append([(tmp_path / f"rank-{rank}").read_text().split() for rank in (0, 1)])
        assert left_in(tmp_path) == []
    assert said[0] == [[str(25 << 20), "False", "False", "1"]] * 2
    assert said[1] == [[str(1 << 20), "True", "True", "0"]] * 2
    assert facts["reached"] == ["DistributedDataParallel"]
    assert losses[0] == losses[1]


# As torchrun does, each in a session of its own, but without an end, and with a folder for logs that stays.
LAUNCHER = """
import os, subprocess, sys
os.makedirs(os.environ["PET_LOG_DIR"])
for number in range(100):
    words = [sys.executable, "-S", "-c", "import time; time.sleep(100)"]
    subprocess.Popen(words, start_new_session=True)
    open(f"started-{number}", "w").close()
"""


def test_ranks_that_a_launcher_is_still_starting_end_with_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LAUNCHER)
    runner = Runner((sys.executable, "train.py"), tmp_path, environment())
    while not (tmp_path / "started-3").exists() and runner.process.poll() is None:
        time.sleep(0.01)
    logs = Path(runner._scratch.name) / "ranks"
    assert logs.is_dir()
    runner.close()
    assert left_in(tmp_path) == []
    assert not logs.exists()


def left_in(folder: Path) -> list[str]:
    """Processes that have this folder as theirs, after a while in which they may end."""
    until = time.monotonic() + 10
    while (found := [str(pid) for pid in Path("/proc").glob("[0-9]*") if _home(pid) == folder]) and (
        time.monotonic() < until
    ):
        time.sleep(0.1)
    return found


def _home(pid: Path) -> Path | None:
    try:
        return (pid / "cwd").readlink()
    except OSError:
        return None


@pytest.mark.torch
@pytest.mark.complete
@pytest.mark.parametrize(
    ("words", "script"), [(TORCHRUN, RANKS), (PLAIN, FORKS), (PLAIN, SHORT)], ids=["torchrun", "forks", "ends early"]
)
def test_a_change_is_measured(tmp_path: Path, words: tuple[str, ...], script: str) -> None:
    measured = pair_of(tmp_path, words, script)
    assert measured.pair.head_us < 0.6 * measured.pair.base_us
    assert measured.head.reached
    assert not measured.base.reached
    assert left_in(tmp_path) == []


@pytest.mark.complete
@pytest.mark.torch
def test_a_patch_of_a_script_that_has_ended_reached_it(tmp_path: Path) -> None:
    """Python takes the file's name away from the main module when the script's last line has run."""
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(SHORT)
    settings = {"files": {str(tmp_path / "train.py"): "train.py", str(tmp_path / "other.py"): "other.py"}, "losses": 9}
    with Runner((sys.executable, "train.py"), tmp_path, environment(), settings) as process:
        process.ready()
        with pytest.raises(EndedError):
            process.turn(100)
        facts = process.facts()
    assert facts["reached"] == ["train.py, as patched"]
    assert facts["missed"] == ["other.py, which the script does not import"]
