"""Floating-point operations by module, from steps that do not follow each other."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from advisor.report.module_work import flops_by_module  # noqa: E402
from advisor.trace.read.load import load  # noqa: E402


@pytest.mark.parametrize("recorded", [(1,), (1, 2), (1, 4)])
def test_steps_that_begin_with_the_backward_of_the_forward_before(tmp_path: Path, recorded: tuple[int, ...]) -> None:
    """Their nodes and their forward ops differ by another number in each step that was recorded apart."""
    from torch.profiler import ProfilerActivity, profile, record_function

    model, path = torch.nn.Linear(8, 4), tmp_path / "lines.json"
    losses = [model(torch.randn(2, 8)).sum()]
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        for step in range(1, 6):
            with record_function(f"ProfilerStep#{step}" if step in recorded else f"advisor:between#{step}"):
                losses.pop().backward()
                with record_function("advisor:module|head|Linear"):
                    out = model(torch.randn(2, 8))
                losses.append(out.sum())
                for _ in range(step):  # steps that differ by a number of nodes
                    out.relu()
    profiler.export_chrome_trace(str(path))
    product = 2 * 2 * 8 * 4  # forward, and once more for the gradient of the weight: the input asks for none
    assert flops_by_module(load(path)) == {"head": 2 * product}
