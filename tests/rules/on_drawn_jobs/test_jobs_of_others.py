"""Jobs drawn by who had read no rule: what once was told wrongly of them."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from benchmarks.gpu.drawn_jobs.eleventh_set import JOBS, run
from drawn_loops import found, report

from advisor.model import Report

TRACES = Path(__file__).resolve().parents[2].parent / "shared" / "traces"


def first_part(name: str, share: float) -> Report:
    """What is said of a recorded trace that ends earlier."""
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"the recorded trace {path.name} is not beside this checkout")
    known = json.loads(gzip.decompress(path.read_bytes()))
    rows = [row for row in known["traceEvents"] if row.get("ph") == "X" and row.get("cat") not in (None, "Trace")]
    begin, end = min(map(_start, rows)), max(map(_end, rows))
    kept = [row for row in rows if _end(row) <= begin + share * (end - begin)]
    return report(json.dumps({**known, "traceEvents": kept}).encode())


def _start(row: dict[str, Any]) -> float:
    return float(row["ts"])


def _end(row: dict[str, Any]) -> float:
    return float(row["ts"]) + float(row.get("dur", 0))


@cache
def told(name: str) -> Report:
    """What is said of a job."""
    job = next(one for one in JOBS if one.name == name)
    return report(run(job).trace())


@pytest.mark.complete
def test_copies_of_one_checkpoint_are_not_copies_of_each_step() -> None:
    said = told("saved")
    assert not found(said, "blocking-copies")
    (idle,) = found(said, "idle-gpu")
    assert "in one of the 6 recorded steps" in idle.message
    assert idle.saving is None


def test_plans_that_are_timed_are_no_products_of_the_model() -> None:
    said = told("searched")
    assert not found(said, "fp32-matmul")
    assert not found(said, "slow-kernels")
    (finding,) = found(said, "repeated-tuning")
    assert finding.saving is not None
    assert finding.saving.low_us < 3_691 / 3_942 * (said.step_us or 0) < 1.01 * finding.saving.high_us


def test_a_recording_that_ends_in_a_backward_pass_shows_no_evaluation() -> None:
    said = first_part("dlrm_8ranks_v100/worker0_step_12.1694128201545.pt.trace.json.gz", 2 / 3)
    assert not found(said, "evaluation-with-gradients")


def test_kernels_of_a_step_do_not_take_longer_than_it() -> None:
    """The host is ahead; what the device did for most of its steps lies after the end."""
    said = first_part("pairs/tinylm-batch-4-to-32-rtx3060/before.json.gz", 2 / 3)
    assert not found(said, "fp32-matmul")


def test_tables_with_dense_gradients_are_one_finding_and_come_before_a_fused_update() -> None:
    job = next(one for one in JOBS if one.name == "table")
    slow, fast = run(job), run(job, fixed=True)
    said = told("table")
    first, *_ = [(outcome.rule, finding) for outcome, finding in said.findings()]
    assert first[0] == "dense-embedding-gradients"
    assert len(found(said, "dense-embedding-gradients")) == 1
    assert "6 embeddings" in first[1].message
    gain_us = slow.step_us() - fast.step_us()
    assert first[1].saving is not None
    assert first[1].saving.low_us <= gain_us <= first[1].saving.high_us <= slow.step_us()
