"""What processes of tests leave out of torch: its compiler, as long as nothing else imports it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHILDREN = Path(__file__).parents[1] / "support" / "children"
STEPS = """
import sys, torch
weight = torch.ones(1, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.5)
files = set()
def heard(frame, event, value):
    files.add(frame.f_code.co_filename)
def step():
    sys.setprofile(heard)
    optimizer.zero_grad()
    (2 * weight).sum().backward()
    optimizer.step()
    sys.setprofile(None)
    return weight.item(), torch.is_grad_enabled()
print(step(), "torch._dynamo" in sys.modules)
import torch._dynamo
print(step(), {frame for frame in files if "children" in frame})
"""


@pytest.mark.torch
@pytest.mark.complete  # what is left out costs time and changes nothing: that is all that could fail
def test_steps_are_the_same_without_the_compiler() -> None:
    pytest.importorskip("torch")
    command = [sys.executable, "-c", STEPS]
    bare, child = (
        subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=True)
        for path in ("", str(CHILDREN))
    )
    assert bare.stdout.replace("True) True", "True) -", 1) == child.stdout.replace("True) False", "True) -", 1)
    assert "True) False" in child.stdout
