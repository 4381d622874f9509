"""A script that freezes its objects for Python's collector, as advised: what is recorded of it stays the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from capture_runs import capture

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SCRIPT = """
import gc
import torch
class Trainer:
    def __init__(self):
        self.models = {"student": torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Linear(5, 4))}
        self.optimizer = torch.optim.SGD(self.models["student"].parameters(), lr=0.1)
    def fit(self, data):
        gc.collect()
        FREEZE
        for step in range(60):
            x = data[torch.randperm(40)[:8]]
            (self.models["student"](x).sum() + self.models["student"](x).mean()).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
Trainer().fit(torch.randn(40, 6))
"""


@pytest.mark.complete
def test_frozen_models_and_weights_are_found(tmp_path: Path) -> None:
    found = []
    for name, line in (("plain", "pass"), ("frozen", "gc.freeze()")):
        (tmp_path / f"{name}.py").write_text(SCRIPT.replace("FREEZE", line))
        done = capture(tmp_path / name, tmp_path / f"{name}.py")
        assert done.status == 0, done.err
        found.append((done.rank["model"], sum(digit != "0" for digit in done.rank["dataflow"]["held"])))
    (model, held), (frozen_model, frozen_held) = found
    assert model
    assert model == frozen_model
    assert min(held, frozen_held) >= 5, "weights and biases of two layers, and the data"
