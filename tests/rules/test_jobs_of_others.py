"""Jobs drawn by who had read no rule: what once was told wrongly of them."""

from __future__ import annotations

from functools import cache

from benchmarks.drawn_jobs.eleventh_set import JOBS, run
from drawn_loops import found, report

from advisor.model import Report


@cache
def told(name: str) -> Report:
    """What is said of a job."""
    job = next(one for one in JOBS if one.name == name)
    return report(run(job).trace())


def test_copies_of_one_checkpoint_are_not_copies_of_each_step() -> None:
    said = told("saved")
    assert not found(said, "blocking-copies")
    (idle,) = found(said, "idle-gpu")
    assert "in one of the 6 recorded steps" in idle.message
    assert idle.saving is None
