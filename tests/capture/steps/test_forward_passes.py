"""Evaluations that are a loop of the script's own: whether their passes are recorded, and how large they are."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from capture_runs import capture

from advisor.analyses.base.evaluation_calls import EvaluationCall, EvaluationCalls
from advisor.capture.record import RankRecord
from advisor.computed import Computed

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SCRIPT = """import sys, time, torch
torch.set_num_threads(1)
mode = sys.argv[1]

class Slow(torch.nn.Module):
    def forward(self, x):
        time.sleep(0.01 if self.training else 0.04)
        return x.tanh()

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.slow, self.last = torch.nn.Linear(12, 30), Slow(), torch.nn.Linear(30, 1)
    def forward(self, x):
        return self.last(self.slow(self.first(x)))

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
table = torch.randn(400, 12)

def score(x):
    return net(x)  # CALL

def held_out():
    net.eval()
    rows = table[:160].split(8 if mode in ("graphs", "gradients") else 32) if mode != "single" else table[:8]
    total = 0.0
    if mode == "game":
        seen = table[0]
        for _ in range(8):
            seen = seen + 0.1 * score(seen)
    elif mode == "gradients":
        for x in rows:
            x.requires_grad_()
            total += torch.autograd.grad(score(x).sum(), x)[0].norm().item()
    else:
        for x in rows:
            total += score(x).mean().item()
    net.train()
    return total

for epoch in range(14):
    for at in range(0, 400, 40):
        optimizer.zero_grad()
        net(table[at:at + 40]).square().mean().backward()
        optimizer.step()
    if mode == "graphs" or mode == "gradients":
        held_out()
    else:
        with torch.no_grad():
            held_out()
"""
CALL = next(at for at, text in enumerate(SCRIPT.splitlines(), 1) if "# CALL" in text)


def of(folder: Path, mode: str) -> EvaluationCall | None:
    (folder / "train.py").write_text(SCRIPT)
    done = capture(folder / "out", folder / "train.py", mode)
    assert done.status == 0, done.err
    calls = Computed(record=msgspec.convert(done.rank, RankRecord)).get(EvaluationCalls).calls
    assert all(one.source.line == CALL for one in calls)
    return calls[0] if calls else None


@pytest.mark.complete
def test_passes_with_a_graph(tmp_path: Path) -> None:
    call = of(tmp_path, "graphs")
    assert call is not None
    assert call.records
    assert (call.samples, call.trained) == (8, 40)


@pytest.mark.complete
def test_one_sample_at_a_time(tmp_path: Path) -> None:
    call = of(tmp_path, "single")
    assert call is not None
    assert not call.records
    assert (call.samples, call.trained, call.apart) == (1, 40, True)


@pytest.mark.complete
def test_a_game_plays_one_after_the_other(tmp_path: Path) -> None:
    call = of(tmp_path, "game")
    assert call is not None
    assert not call.records
    assert not call.apart


@pytest.mark.complete
def test_gradients_of_inputs_are_wanted(tmp_path: Path) -> None:
    call = of(tmp_path, "gradients")
    assert call is None or not call.records


@pytest.mark.complete
def test_whole_batches_without_a_graph(tmp_path: Path) -> None:
    call = of(tmp_path, "batches")
    assert call is not None
    assert not call.records
    if call.samples is None:
        pytest.skip("other work had the core: no stack sample fell into a forward pass of the evaluation")
    assert (call.samples, call.trained, call.apart) == (32, 40, True)
