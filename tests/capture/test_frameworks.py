"""Frameworks and launchers, without an edit: each rank its trace, launchers and workers none."""

from __future__ import annotations

import importlib.util
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from capture_runs import SCRIPTS, Captured, advised, capture

pytest.importorskip("torch")
from advisor.capture.inside.guards import frameworks

pytestmark = pytest.mark.torch


def needs(name: str) -> None:
    """Skips, visibly, where the framework is not installed."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")


def port() -> str:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def two_ranks(done: Captured) -> None:
    assert done.status == 0, done.err
    assert done.out == "2 ranks trained\n"
    ranks = done.record["ranks"]
    assert [(rank["rank"], rank["world_size"]) for rank in ranks] == [(0, 2), (1, 2)]
    assert len({rank["pid"] for rank in ranks}) == 2
    for rank in ranks:
        assert rank["steps"]["count"] == rank["steps"]["optimizer_steps"] == 40
        assert {file["role"] for file in rank["files"]} == {"profile", "lines"}
        assert rank["settings"]["ddp"]["find_unused_parameters"] is True
        assert rank["local_rank"] == rank["rank"]
        names = {row["name"] for row in done.events(rank=rank["rank"])}
        assert any("gloo:all_reduce" in name for name in names)
    first, second = (rank["files"][0]["steps"] for rank in ranks)
    assert first == second, "ranks of one job record the same iterations"
    assert len(list(done.folder.glob("*.trace.json.gz"))) == 4


@pytest.mark.parametrize(
    ("modules", "expected"),
    [
        (("lightning.pytorch.trainer.trainer", "lightning.pytorch.loops.fit_loop"), "lightning"),
        (("pytorch_lightning.loops.fit_loop",), "lightning"),
        (("transformers.trainer", "accelerate.data_loader"), "transformers"),
        (("accelerate.data_loader",), "accelerate"),
        (("transformers.models.bert.modeling_bert", "lightning_utilities.core"), None),
    ],
)
def test_the_framework_that_turns_the_loop(modules: tuple[str, ...], expected: str | None) -> None:
    """By the frames on the stack, the outermost first; a model of a library is no loop of it."""
    call = frameworks.of_the_loop
    for module in reversed(modules):
        frame: dict[str, Any] = {"__name__": module, "call": call}
        exec("def turn():\n    return call()", frame)
        call = frame["turn"]
    assert call() == expected


@pytest.mark.complete
def test_torchrun(tmp_path: Path) -> None:
    torchrun = Path(sys.executable).with_name("torchrun")
    if not torchrun.is_file():
        pytest.skip("torchrun is not installed beside this interpreter")
    words = (torchrun, "--nproc-per-node", "2", "--master-port", port(), SCRIPTS / "ddp.py")
    done = capture(tmp_path / "out", *words, launcher=True)
    two_ranks(done)
    assert [rank["local_world_size"] for rank in done.record["ranks"]] == [2, 2]


@pytest.mark.complete
def test_python_m_torch_distributed_run(tmp_path: Path) -> None:
    words = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", port())
    two_ranks(capture(tmp_path / "out", sys.executable, *words, SCRIPTS / "ddp.py", launcher=True))


@pytest.mark.complete
@pytest.mark.parametrize("how", ["spawn", "forkserver"])
def test_mp_spawn(tmp_path: Path, how: str) -> None:
    """The named script only starts its ranks: it trains nothing and leaves nothing."""
    two_ranks(capture(tmp_path / "out", SCRIPTS / "ddp.py", how, env={"MASTER_PORT": port()}))


@pytest.mark.complete
def test_forked_ranks(tmp_path: Path) -> None:
    """A forked process starts with its parent's hooks; where it joins a process group it is a rank of its own."""
    two_ranks(capture(tmp_path / "out", SCRIPTS / "ddp.py", "fork", env={"MASTER_PORT": port()}))


@pytest.mark.complete
def test_ranks_forked_from_a_profiled_process(tmp_path: Path) -> None:
    """torch's profiler does not survive a fork: they train as they would, and a note says why there is no trace."""
    script = tmp_path / "late.py"
    script.write_text(
        "import os, sys\nimport torch\nimport torch.distributed as dist\ntorch.set_num_threads(1)\n"
        "model = torch.nn.Linear(4, 1)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "def train(steps):\n    for _ in range(steps):\n        model(torch.ones(2, 4)).sum().backward()\n"
        "        optimizer.step()\n"
        "train(60)\nif os.fork() == 0:\n"
        "    dist.init_process_group('gloo', init_method=f'file://{sys.argv[1]}', rank=0, world_size=1)\n"
        "    train(60)\n    print('child trained', flush=True)\n    os._exit(0)\n"
        "os.wait()\nprint('trained')\n"
    )
    done = capture(tmp_path / "out", script, tmp_path / "store")
    assert (done.status, done.out) == (0, "child trained\ntrained\n"), done.err
    first, second = sorted(done.record["ranks"], key=lambda rank: not rank["files"])
    assert {file["role"] for file in first["files"]} == {"profile", "lines"}
    assert (second["files"], len(second["notes"])) == ([], 1)
    assert "forked" in second["notes"][0]


@pytest.mark.complete
def test_a_report_of_two_ranks(tmp_path: Path) -> None:
    """The whole command on a launcher: one report."""
    torchrun = Path(sys.executable).with_name("torchrun")
    if not torchrun.is_file():
        pytest.skip("torchrun is not installed beside this interpreter")
    words = ("--", str(torchrun), "--nproc-per-node", "2", "--master-port", port(), str(SCRIPTS / "ddp.py"))
    done = advised("--quiet", *words, cwd=tmp_path)
    assert (done.status, done.out) == (0, b"2 ranks trained\n"), done.err
    assert (tmp_path / "advisor-report" / "report.html").is_file()


@pytest.mark.complete
def test_lightning(tmp_path: Path) -> None:
    needs("lightning")
    done = capture(tmp_path / "out", SCRIPTS / "with_lightning.py", cwd=tmp_path)
    assert done.status == 0, done.err
    assert "steps 80" in done.out
    steps = done.rank["steps"]
    # Sanity check before training: 2 batches; then 4 after each of two epochs.
    assert (steps["source"], steps["count"], steps["eval_count"]) == ("loader", 80, 10)
    assert done.rank["settings"]["framework"] == "lightning"
    assert not done.rank["optimizers"][0].get("made_by")
    assert len(done.step_rows()) >= 5
    assert not done.rank["files"][0]["partial"]


@pytest.mark.complete
@pytest.mark.parametrize(("accumulate", "expected"), [("1", 80), ("2", 40)])
def test_hugging_face_trainer(tmp_path: Path, accumulate: str, expected: int) -> None:
    needs("transformers")
    needs("accelerate")
    done = capture(tmp_path / "out", SCRIPTS / "with_trainer.py", accumulate, cwd=tmp_path)
    assert done.status == 0, done.err
    steps = done.rank["steps"]
    assert (steps["source"], steps["count"], steps["optimizer_steps"]) == ("loader", expected, expected)
    assert done.rank["settings"]["framework"] == "transformers"
    made = (*done.rank["loaders"], *done.rank["optimizers"])
    assert {one["made_by"] for one in made} == {"transformers"}
    text = (SCRIPTS / "with_trainer.py").read_text().splitlines()
    assert {text[one["line"] - 1] for one in made} == {"    arguments = TrainingArguments("}
    assert not done.rank["files"][0]["partial"]


@pytest.mark.complete
@pytest.mark.parametrize("launched", [False, True])
def test_lightning_on_two_ranks(tmp_path: Path, launched: bool) -> None:
    """Ranks that Lightning or torchrun starts; a loader that it makes again with its own sampler keeps its line."""
    needs("lightning")
    words = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2") if launched else ()
    start = (sys.executable, *words) if launched else ()
    done = capture(tmp_path / "out", *start, SCRIPTS / "with_lightning_ddp.py", launcher=launched, cwd=tmp_path)
    assert done.status == 0, done.err
    ranks = done.record["ranks"]
    assert [(rank["rank"], rank["steps"]["count"]) for rank in ranks] == [(0, 80), (1, 80)]
    text = (SCRIPTS / "with_lightning_ddp.py").read_text().splitlines()
    for rank in ranks:
        (loader,) = rank["loaders"]
        assert loader["sampler"] == "DistributedSampler"
        assert "DataLoader(data" in text[loader["line"] - 1]
        assert rank["settings"]["set_at"]["ddp"]["made_by"] == "lightning"


@pytest.mark.complete
def test_accelerate(tmp_path: Path) -> None:
    needs("accelerate")
    done = capture(tmp_path / "out", SCRIPTS / "with_accelerate.py", cwd=tmp_path)
    assert done.status == 0, done.err
    assert (done.rank["steps"]["source"], done.rank["steps"]["count"]) == ("loader", 80)
    assert done.rank["settings"]["framework"] == "accelerate"


@pytest.mark.complete
def test_accelerate_launch(tmp_path: Path) -> None:
    needs("accelerate")
    launcher = Path(sys.executable).with_name("accelerate")
    if not launcher.is_file():
        pytest.skip("accelerate is not installed beside this interpreter")
    words = (launcher, "launch", "--cpu", SCRIPTS / "with_accelerate.py")
    done = capture(tmp_path / "out", *words, launcher=True, cwd=tmp_path)
    assert done.status == 0, done.err
    assert done.rank["steps"]["count"] == 80
