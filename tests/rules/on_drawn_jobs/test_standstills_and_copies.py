"""What the twentieth set of drawn jobs showed of hosts: threads that do not run, masks made there, the usual copy."""

from __future__ import annotations

import functools
import json

import pytest
from benchmarks.gpu.drawn_jobs import twentieth_set
from benchmarks.gpu.drawn_jobs.thirteenth_set import Watched
from drawn_loops import found, report

from advisor.model import Finding, Report


def job(name: str) -> Watched:
    """A job of the set."""
    return next(job for job in twentieth_set.JOBS if job.name == name)


@functools.cache
def trace(name: str, fixed: bool = False) -> bytes:
    """Its file."""
    return twentieth_set.run(job(name), fixed=fixed).trace()


@functools.cache
def told(name: str, fixed: bool = False) -> Report:
    """What is said of it."""
    return report(trace(name, fixed))


def the_fix(finding: Finding) -> str:
    """The title of what to do."""
    assert finding.fix is not None
    return finding.fix.title


def test_a_wait_that_returns_late_is_the_quotas_doing() -> None:
    """Of 45.6 ms of the step that the quota costs, the recorded steps show 38; no wait is to be removed."""
    (only,) = [finding for _, finding in told("throttled").findings()]
    assert "no thread of the process runs" in only.message
    assert "multiples of 100 ms" in only.message
    assert "Raise the container's CPU limit" in the_fix(only)
    assert only.saving is not None
    assert only.saving.low_us == 0
    assert 30 <= only.saving.high_us / 1e3 <= 45.6


def test_without_a_quota_the_same_job_has_no_pauses() -> None:
    assert not [rule for rule in ("idle-gpu", "sync-in-loop") if found(told("throttled", True), rule)]


@pytest.mark.parametrize("at_us", [37_123, 61_000])
def test_the_periods_begin_whenever_they_do(at_us: int) -> None:
    """Clocks of traces begin anywhere: only distances count."""
    known = json.loads(trace("throttled"))
    for row in known["traceEvents"]:
        if "ts" in row:
            row["ts"] += at_us
    (only,) = [finding for _, finding in report(json.dumps(known).encode()).findings()]
    assert "multiples of 100 ms" in only.message


def _later(start_us: float) -> float:
    """30 ms more for each of the last pauses that lies before."""
    return start_us + 30_000 * sum(start_us >= end - 1 for end in (1_500_400, 1_700_400, 1_900_400))


def test_pauses_of_another_rhythm_are_no_quota() -> None:
    """The last three are 30 ms longer: most waits return late, and the trace may lack what they wait for."""
    known = json.loads(trace("throttled"))
    for row in known["traceEvents"]:
        if row["ph"] == "X":
            end = _later(row["ts"] + row["dur"])
            row["ts"] = _later(row["ts"])
            row["dur"] = end - row["ts"]
    (only,) = found(report(json.dumps(known).encode()), "idle-gpu")
    assert "multiples of 100 ms" not in only.message
    assert "returns late" in only.message
    assert only.saving is None
    assert only.fix is None


def test_a_mask_that_the_host_makes_is_to_be_made_on_the_gpu() -> None:
    """30 ms of the step: 20 the host's arithmetic, 10 the copy, which pinned memory would not remove."""
    said = told("masking")
    (idle,), (copies,) = found(said, "idle-gpu"), found(said, "pageable-copies")
    assert "computes what `aten::to` copies" in idle.message
    assert the_fix(idle) == the_fix(copies)
    assert "Create this tensor on the GPU" in the_fix(idle)
    assert idle.saving is not None
    assert copies.saving is not None
    assert (idle.saving.high_us + copies.saving.high_us) / 1e3 == pytest.approx(30, rel=0.05)


def test_a_mask_made_on_the_gpu_is_no_matter() -> None:
    said = told("masking", True)
    assert not found(said, "pageable-copies")
    assert all("computes what" not in finding.message for finding in found(said, "idle-gpu"))


def test_the_usual_copy_of_a_healthy_loop_is_not_told() -> None:
    assert not told("alternating").findings()
