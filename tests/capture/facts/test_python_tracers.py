"""Who watches Python while a script trains: asked of this process, and of a real run."""

from __future__ import annotations

import cProfile
from pathlib import Path

import pytest
from capture_runs import capture

from advisor.capture.inside.facts.python_tracers import running

pytest.importorskip("torch")

WATCHED = """
import cProfile
import torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
profiler = cProfile.Profile()  # PROFILER
for _ in range(60):
    profiler.enable()
    optimizer.zero_grad()
    model(torch.zeros(4, 8)).sum().backward()
    optimizer.step()
    profiler.disable()
profiler.create_stats()
print(sum(one[0] for name, one in profiler.stats.items() if name[2] == "step"))
"""


def test_a_profiler_that_is_on_has_its_package() -> None:
    profiler = cProfile.Profile()
    profiler.enable()
    watching = running()
    profiler.disable()
    assert (watching, running()) == ("cProfile", "")


def test_a_profiler_of_python_that_runs_in_training_alone(tmp_path: Path) -> None:
    """It is off between steps, and still known; what it measured is left to it."""
    (tmp_path / "train.py").write_text(WATCHED)
    done = capture(tmp_path / "out", tmp_path / "train.py")
    assert done.rank["settings"]["python_tracer"] == "cProfile"
    [line] = [number for number, text in enumerate(WATCHED.splitlines(), 1) if text.endswith("# PROFILER")]
    assert done.rank["settings"]["set_at"]["python_tracer"]["line"] == line
    assert int(done.out) >= 50
