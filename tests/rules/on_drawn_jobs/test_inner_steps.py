"""Gradients that are differentiated again, and inner steps: what compiled code cannot, and where the waits are."""

from __future__ import annotations

from benchmarks.gpu.drawn_jobs import twenty_ninth_set as drawn
from drawn_loops import report

from advisor.model import Finding


def told(name: str) -> dict[str, Finding]:
    """The finding of each rule on a job."""
    job = next(one for one in drawn.JOBS if one.name == name)
    return {outcome.rule: finding for outcome, finding in report(drawn.run(job).trace()).findings()}


def test_forces_that_are_trained_are_not_to_be_compiled():
    found = told("mace")
    assert "double-precision" in found
    assert "unfused-elementwise" not in found


def test_the_waits_of_inner_steps_are_not_all_in_backward_passes():
    found = told("maml")
    assert "in the backward pass" not in found["launch-bound"].message
    fix = found["tensor-loop"].fix
    assert fix is not None
    assert "torch._foreach_sub" in fix.title
