"""Jobs drawn as people record them, of one rank and of several: what once was told wrongly of them, or not at all."""

from __future__ import annotations

from functools import cache

import pytest
from benchmarks.gpu.drawn_jobs.eighth_set import JOBS, Recording, run
from benchmarks.gpu.drawn_jobs.eighth_set.ranks import accumulated
from benchmarks.gpu.drawn_jobs.recorded import Recorded
from benchmarks.gpu.drawn_jobs.seventh_set import adamw
from drawn_loops import found, report

from advisor.analyses.costs.replay import Replay
from advisor.computed import Computed
from advisor.model import Finding, Report
from advisor.trace.read.load import read_bytes


@cache
def told(name: str) -> tuple[Report, float, float]:
    """What is said, the step, and what it is without the fault (µs)."""
    job = next(one for one in JOBS if one.name == name)
    slow = run(job)
    return report(slow.trace()), slow.step_us(), run(job, fixed=True).step_us()


def only(said: Report, rule: str) -> Finding:
    """The one finding of a rule."""
    (finding,) = found(said, rule)
    return finding


@pytest.mark.parametrize("name", ["generated", "scored"])
def test_loops_that_only_a_read_or_a_fetch_marks(name: str) -> None:
    said, step_us, usual_us = told(name)
    assert said.steps.source == "repetition"
    assert said.step_us == pytest.approx(step_us, rel=0.01)
    finding = only(said, "launch-bound" if name == "generated" else "sync-in-loop")
    assert finding.saving is not None
    assert finding.saving.high_us == pytest.approx(step_us - usual_us, rel=0.1)


def test_gradients_that_each_micro_batch_reduces_though_no_shapes_are_recorded() -> None:
    """The rows of collectives say how much; autograd's thread waits for them, and the main thread's next kernel."""
    said, step_us, usual_us = told("accumulated")
    finding = only(said, "accumulation-without-no-sync")
    assert "4 passes per update" in finding.message
    assert finding.saving is not None
    assert finding.saving.high_us == pytest.approx(step_us - usual_us, rel=0.07)
    assert finding.measured_us is not None
    job = next(one for one in JOBS if one.name == "accumulated")
    good = report(run(job, fixed=True).trace())
    assert not found(good, "accumulation-without-no-sync")


def test_updates_in_each_micro_batch_reduce_nothing_in_vain() -> None:
    def updated(rt: Recorded, fixed: bool) -> None:
        accumulated(rt, fixed)
        if rt.number % 4 != 3:
            adamw(rt, 2_500)

    job = next(one for one in JOBS if one.name == "accumulated")
    said = report(run(Recording("updated", job.device, updated, "")).trace())
    assert not found(said, "accumulation-without-no-sync")
    assert found(said, "exposed-communication")


def test_regions_between_which_the_device_idles_come_before_a_read_worth_less() -> None:
    said, _, _ = told("broken")
    pieces, read = only(said, "compiled-pieces"), only(said, "sync-in-loop")
    assert pieces.saving is not None
    assert pieces.measured_us is not None
    assert read.saving is None
    assert "compiled-pieces" in read.facts["saving"]


@pytest.mark.parametrize("name", [job.name for job in JOBS if job.truth.startswith("nothing")])
def test_nothing_is_said_where_nothing_is_wrong(name: str) -> None:
    said, step_us, usual_us = told(name)
    assert not list(said.findings())
    assert said.step_us == pytest.approx(usual_us if name == "on_demand" else step_us, rel=0.01)


def test_work_whose_records_were_lost_is_no_idle_time() -> None:
    said, _, _ = told("on_demand")
    (note,) = [item for item in said.health if item.id == "lost-records"]
    assert "left out" in note.message
    assert sum(item.share for item in said.breakdown if item.id == "compute") > 0.98


def test_idle_time_that_a_wait_explains_is_told_once() -> None:
    said, step_us, _ = told("scored")
    assert only(said, "sync-in-loop").measured_us == pytest.approx(0.35 * step_us, rel=0.05)
    assert not found(said, "idle-gpu")


def test_regions_cost_their_calls_as_well_and_the_python_between_them_is_told_once() -> None:
    said, step_us, usual_us = told("broken")
    finding = only(said, "compiled-pieces")
    assert finding.saving is not None
    assert finding.saving.high_us == pytest.approx(step_us - usual_us, rel=0.05)
    assert not found(said, "idle-gpu")


def test_activations_that_adapters_in_fp32_convert() -> None:
    said, step_us, usual_us = told("adapted")
    finding = only(said, "repeated-casts")
    assert "48 times a step" in finding.message
    assert finding.saving is not None
    # The rest is what the drawn products take less than half of in bf16.
    assert 0.4 < finding.saving.low_us / (step_us - usual_us) < finding.saving.high_us / (step_us - usual_us) < 1
    job = next(one for one in JOBS if one.name == "adapted")
    assert not found(report(run(job, fixed=True).trace()), "repeated-casts")


def test_a_wait_for_reductions_at_the_end_of_the_window_counts_in_each_round() -> None:
    job = next(one for one in JOBS if one.name == "accumulated")
    slow = run(job)
    replay = Computed(trace=read_bytes(slow.trace(), "made")).get(Replay)
    assert replay.step_us == pytest.approx(slow.step_us(), rel=0.01)
