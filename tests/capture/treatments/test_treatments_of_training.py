"""Treatments that change how much a step does, and when: batch size, accumulation, copies, intervals."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from advisor.gate.turns import EndedError, Runner, environment

pytestmark = pytest.mark.torch

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(3)
model = nn.Linear(8, 1)
data = TensorDataset(torch.randn(320, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
evaluated = []

def evaluate():
    evaluated.append(sum(len(x) for (x,) in DataLoader(data, 16)))
    return len(evaluated)

seen = []
for (x,) in DataLoader(data, 4, shuffle=True):
    loss = model(x.to(torch.float32)).pow(2).mean()
    x.to("meta")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    seen.append(evaluate())
    torch.save(model.state_dict(), "model.pt")
print(len(seen), seen[-1], len(evaluated))
"""
# Two ranks; 3 backward passes for each step, and a step after two of them at the end.
ACCUMULATING = """
import time

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
torch.manual_seed(rank)
for step in range(62):
    model(torch.randn(4, 8)).pow(2).mean().backward()
    if step % 3 == 2 or step == 61:
        optimizer.step()
        optimizer.zero_grad()
weights = model.module.weight.detach()
both = [torch.zeros_like(weights) for _ in range(2)]
torch.distributed.all_gather(both, weights)
if rank == 0:
    print("same", torch.equal(*both), *(f"{value:.5f}" for value in weights.flatten().tolist()), flush=True)
torch.distributed.destroy_process_group()
time.sleep(0.5)  # gloo's threads let go of tensors a moment later; an interpreter that ends before them aborts
"""


def run(folder: Path, name: str, *treatments: tuple[str, dict[str, Any]], ranks: int = 0) -> tuple[dict[str, Any], str]:
    """What the script leaves, and its last line."""
    pytest.importorskip("torch")
    wanted = [{"name": name, "arguments": arguments} for name, arguments in treatments]
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)) if ranks else ()
    settings = {"treatments": wanted, "losses": 100, "counts": True, "whole": True}
    with Runner((sys.executable, *launcher, name), folder, environment(), settings) as process:
        process.ready()
        process.turn(4)
        process.turn(4)
        counted = process.counted(3)
        with pytest.raises(EndedError) as ended:
            process.turn(1000)
        assert ended.value.status == 0, ended.value.last
        return process.facts() | counted, ended.value.last


@pytest.mark.complete
def test_the_batch_grows_where_samples_are_shuffled_and_calls_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    left, said = run(
        tmp_path,
        "train.py",
        ("batch", {"scale": 2}),
        ("non_blocking", {}),
        ("interval", {"name": "evaluate", "every": 4}),
        ("interval", {"name": "torch.save", "every": 100}),
        ("interval", {"name": "magic", "every": 2}),
    )
    assert left["counts"]["samples"] == 8  # those of evaluations do not count
    assert set(left["reached"]) == {
        "DataLoader: batch size 8 instead of 4",
        "evaluate() runs in one of 4 calls",
        "torch.save() runs in one of 100 calls",
        "copies to the device by .to()",
    }
    assert "magic, which is not a function of torch or of the script" in left["missed"]
    assert any("assumed to be for evaluation" in text for text in left["missed"])
    assert any("not pinned" in text for text in left["missed"])
    assert said == "40 10 10"


@pytest.mark.complete
def test_accumulation_joins_gradients_once_and_leaves_ranks_alike(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ACCUMULATING)
    base, said = run(tmp_path, "train.py", ranks=2)
    left, changed = run(tmp_path, "train.py", ("no_sync", {}), ranks=2)
    assert left["reached"] == ["DistributedDataParallel: 2 of 3 backward passes without sync"]
    assert said.split()[:2] == changed.split()[:2] == ["same", "True"]
    assert [float(text) for text in said.split()[2:]] == pytest.approx(
        [float(text) for text in changed.split()[2:]], abs=2e-5
    )
    assert 0 < left["reductions"] < base["reductions"]


@pytest.mark.complete
def test_no_sync_says_where_nothing_is_accumulated(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ACCUMULATING.replace("step % 3 == 2 or step == 61", "True"))
    left, _ = run(tmp_path, "train.py", ("no_sync", {}), ranks=2)
    assert left["reached"] == []
    assert "synchronization can be skipped" in left["missed"][0]


def test_a_loader_made_again_is_known_by_a_loader_that_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_data = pytest.importorskip("torch.utils.data")
    from advisor.capture.inside.treatments import batch
    from advisor.capture.inside.treatments.door import Door

    kind, door = torch_data.DataLoader, Door()
    monkeypatch.setattr(kind, "__init__", kind.__init__)
    batch.apply({"scale": 2}, door)
    first = [1.0] * 80  # a list takes no weak reference
    loader = kind(first, 4, shuffle=True)
    # As accelerate does: the same samples, from the sampler of a loader that it replaces, and once more.
    loader = kind(loader.dataset, batch_sampler=loader.batch_sampler)
    loader = kind(loader.dataset, batch_sampler=loader.batch_sampler)
    assert loader.batch_sampler.batch_size == 8
    assert door.notes.missed == []
    # An equal list, and one that may lie where the first did.
    kind(list(first), batch_sampler=[[0, 1]])
    assert len(door.notes.missed) == 1
    sampler = loader.batch_sampler
    del loader
    kind(first, batch_sampler=sampler)
    assert len(door.notes.missed) == 1  # the same sentence: no loader is alive that was changed
