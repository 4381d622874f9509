"""Loops that evaluate with gradients enabled: seen by what their variables hold, and nothing of the script kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from capture_runs import capture
from tiers import complete

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SCRIPT = """
import sys, weakref
import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.rand(160, 8)
train, valid = DataLoader(data, batch_size=8), DataLoader(data[:40], batch_size=8)
mode = sys.argv[1]
alive = []

def evaluate():  # DEFINED
    total = 0.0
    if mode == "locals":
        mine = locals()
    for batch in valid:  # LOOP
        inputs = batch.clone().requires_grad_() if mode == "forces" else batch
        with torch.set_grad_enabled(mode != "inside" and torch.is_grad_enabled()):
            loss = model(inputs).sum()
        if alive and mode == "graphs":
            assert alive.pop()() is None  # the loss of the batch before is gone
        alive.append(weakref.ref(loss))
        total += loss.item()
    if mode == "locals":
        assert mine["total"] is not None  # what the script holds of its variables stays
    return total

def fit():
    for epoch in range(4):
        kept = []
        for batch in train:
            kept.append(model(batch).sum())
            if mode != "several" or len(kept) == 5:
                optimizer.zero_grad()
                loss = sum(kept)
                loss.backward()
                optimizer.step()
                kept = []
        if mode == "no_grad":
            with torch.no_grad():
                evaluate()
        elif mode != "several":
            evaluate()

fit()
"""


def found(folder: Path, mode: str) -> Any:
    (folder / "train.py").write_text(SCRIPT)
    done = capture(folder / "out", folder / "train.py", mode)
    assert done.status == 0, done.err
    return done.rank["evaluation_graph"]


@pytest.mark.complete
def test_an_evaluation_with_gradients_is_named_with_its_loop(tmp_path: Path) -> None:
    graph = found(tmp_path, "graphs")
    lines = SCRIPT.splitlines()
    first, loop = (next(at for at, text in enumerate(lines, 1) if mark in text) for mark in ("# DEFINED", "# LOOP"))
    assert (graph["name"], graph["function"], graph["first"], graph["line"]) == ("loss", "evaluate", first, loop)


@pytest.mark.complete
def test_what_locals_returned_is_left_alone(tmp_path: Path) -> None:
    assert found(tmp_path, "locals")["name"] == "loss"


@pytest.mark.parametrize("mode", complete("no_grad", "inside", "forces", "several"))
def test_other_loops_are_none(mode: str, tmp_path: Path) -> None:
    """Under no_grad, around the model alone, with gradients of inputs; and training on several batches at once."""
    assert found(tmp_path, mode) is None
