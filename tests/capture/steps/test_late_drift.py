"""A training that becomes slower late: found with its line, on a real run, and not where nothing grows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from capture_runs import advised

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SCRIPT = """import sys, torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
steps, late = int(sys.argv[1]), int(sys.argv[2])
data = TensorDataset(torch.randn(2048, 64), torch.randn(2048, 1))
model = torch.nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
history = []
def remember(loss):
    history.append(loss.detach())
    if len(history) > late:
        return torch.stack(history[late - 1:]).mean()
    return history[-1]
step = 0
while step < steps:
    for x, y in DataLoader(data, batch_size=64, shuffle=True):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        smooth = remember(loss)
        step += 1
        if step == steps:
            break
"""


@pytest.mark.complete
@pytest.mark.parametrize("late", [1500, 100_000])
def test_what_sets_in_late_is_found_with_its_line(tmp_path: Path, late: int) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    words = ("--select", "growing-step-time,slowing-steps", "--no-calibrate", "--format", "json", "-o", "report.json")
    done = advised(*words, "train.py", "8000", str(late), cwd=tmp_path)
    assert done.status == 0, done.err
    report = json.loads((tmp_path / "report.json").read_bytes())
    found = {one["rule"]: one["findings"] for one in report["outcomes"] if one["status"] == "found"}
    if late == 100_000:
        assert found == {}
        return
    busy = [one["message"] for one in report["health"] if one["id"].startswith("busy")]
    if busy and "growing-step-time" not in found:
        pytest.skip(f"steps of a busy machine: {busy[0]}")
    said = {one["rule"]: one.get("reason") or one["status"] for one in report["outcomes"]}
    assert "growing-step-time" in found, said
    (finding,) = found["growing-step-time"]
    assert (finding["where"][0]["file"], finding["where"][0]["line"]) == ("train.py", 12)
    assert 1000 < finding["facts"]["began_step"] < 6000
    assert finding["saving"]["high_us"] > 0
