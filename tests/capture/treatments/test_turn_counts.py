"""What is counted in a gate's process: wait for data, samples, ops of profiled steps, and how long the start takes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from advisor.gate.turns import Runner, environment

SCRIPT = """
import gc, time
import torch
from torch import nn

torch.set_num_threads(1)

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 200

    def __getitem__(self, index):
        time.sleep(0.002)
        return {"x": torch.ones(8), "y": 1}

model = nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
time.sleep(0.3)
for batch in torch.utils.data.DataLoader(Slow(), batch_size=4):
    optimizer.zero_grad(set_to_none=False)
    model(batch["x"]).sum().backward()
    optimizer.step()
    gc.collect(0)
"""


@pytest.mark.torch
def test_waits_samples_collections_and_ops_are_counted(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(SCRIPT)
    with Runner((sys.executable, "train.py"), tmp_path, environment(), {"counts": True, "losses": 9}) as process:
        process.ready()
        process.turn(3)
        assert process.facts()["counts"] == {}  # the warm-up is no turn
        us = process.turn(10)
        profiled = process.counted(2)
        us = max(us, process.turn(10))  # a busy machine may slow one of them
        facts = process.facts()
        assert process.counted(500) == {}  # it ends before
    counts = facts["counts"]
    assert counts["samples"] == 4
    assert 8_000 < counts["wait_us"] < us
    assert 0 < counts["gc_us"] < us
    assert counts["cpu_us"] > 0
    assert facts["startup_us"] > 300_000
    assert profiled["zeroed"] == 2  # weight and bias
    assert profiled["ops"] > 10
    assert profiled["kernels"] == profiled["syncs"] == 0
