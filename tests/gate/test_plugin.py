"""The fixture `advisor_step` in a test suite of somebody else."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from advisor.gate import config
from advisor.gate.step_profile import StepProfile
from advisor.model import Counter, Metric

SUITE = """
import pytest
import torch

model = torch.nn.Linear(8, 2)
data = torch.randn(4, 8)


def step():
    loss = model(data).sum()
    loss.backward()


def item_step():
    loss = model(data).sum()
    loss.backward()
    loss.item()


def test_within(advisor_step):
    profile = advisor_step(step, max_scalar_reads=0, max_cpu_ops=500)
    assert profile["scalar_reads"] == 0
    assert profile["op:aten::linear"] == 1
    more = advisor_step(item_step, max_cpu_ops=500)
    assert more["scalar_reads"] == 1
    assert more["cpu_ops"] == profile["cpu_ops"] + 2  # aten::item and aten::_local_scalar_dense


def test_over(advisor_step):
    advisor_step(item_step, max_scalar_reads=0)


def test_of_the_configuration(advisor_step):
    advisor_step(step)


def test_not_measured(advisor_step):
    advisor_step(step, max_kernels=5)


def test_typing_error(advisor_step):
    advisor_step(step, max_kernel=5)
"""


@pytest.mark.torch
def test_the_fixture_in_an_ordinary_suite(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "test_step.py").write_text(SUITE)
    (tmp_path / "pyproject.toml").write_text("[tool.torch-advisor.gate]\nmax_cpu_ops = 3\n")
    loaded = any(entry.value == "advisor.gate.pytest_plugin" for entry in entry_points(group="pytest11"))
    words = [] if loaded else ["-p", "advisor.gate.pytest_plugin"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rf", *words, "test_step.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    out = done.stdout
    assert "4 failed, 1 passed" in out
    assert "over budget: scalar_reads is 1, at most 0" in out
    assert "cpu_ops is " in out
    assert "at most 3 (" in out
    assert "kernels has a budget and was not measured: " in out
    assert "did you mean 'kernels'?" in out


def test_every_step_must_keep_a_budget() -> None:
    counter = Counter("syncs", "count", (0.0, 0.0, 5.0, 0.0, 0.0))
    profile = StepProfile({"syncs": Metric("syncs", 1.0, "count")}, (counter,))
    limits = config.parse({"max_syncs": 1}).budgets
    assert profile.exceeded(limits) == ["syncs is 5, at most 1"]
    with pytest.raises(KeyError, match="was not measured"):
        profile["kernels"]


def test_an_unmeasured_metric_says_why() -> None:
    profile = StepProfile({"kernels": Metric("kernels", None, "count", "not_measured", "there is no device")}, ())
    limits = config.parse({"max_kernels": 1}).budgets
    assert profile.exceeded(limits) == ["kernels has a budget and was not measured: there is no device"]
