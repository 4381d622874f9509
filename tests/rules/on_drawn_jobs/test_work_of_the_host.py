"""What the seventeenth set of drawn jobs showed: the host's own work, by whom it is called, and steps that log."""

from __future__ import annotations

import pytest
from benchmarks.gpu.drawn_jobs import seventeenth_set
from drawn_loops import found, report

from advisor.model import Report


def told(name: str) -> Report:
    """What is said of a job."""
    job = next(job for job in seventeenth_set.JOBS if job.name == name)
    return report(seventeenth_set.run(job).trace())


@pytest.mark.parametrize(
    ("name", "what", "cost_ms", "certain"),
    [
        ("resampled", "`resample` in `to_16k` at audio.py:61", 83.9, True),
        ("pushed", "`update_named_param` in `push_weights` at weights.py:88", 611, False),
        ("clips", "`torchcodec_ns::get_frames_at_indices`", 119, False),
    ],
)
def test_many_pieces_of_the_hosts_work_are_one(name: str, what: str, cost_ms: float, certain: bool) -> None:
    """By the function that calls them, or by the op that works between its launches; no compiler makes that shorter.

    Where pieces alternate with work of the device, each may need the one before, and nothing is promised for certain.
    """
    said = told(name)
    first = found(said, "idle-gpu")[0]
    assert what in first.message
    assert first.saving is not None
    assert first.saving.high_us / 1e3 == pytest.approx(cost_ms, rel=0.25)
    assert (first.saving.low_us > 0.85 * first.saving.high_us) is certain
    assert certain or first.saving.low_us == 0
    assert not found(said, "launch-bound")


def test_where_more_is_sent_than_computation_hides_parameters_are_to_be_kept() -> None:
    (finding,) = found(told("resharded"), "exposed-communication")
    assert finding.fix is not None
    assert "reshard_after_forward=False" in finding.fix.title
    assert finding.saving is not None
    assert finding.saving.high_us / 1e3 > 391


def test_a_step_that_is_one_graph_is_found_though_it_logs() -> None:
    said = told("replaying")
    assert said.steps.source == "repetition"
    assert said.step_us / 1e3 == pytest.approx(19.6, rel=0.01)


@pytest.mark.variants(1)
@pytest.mark.parametrize("name", ["recomputed", "smoothed", "statespace", "voxels", "replaying"])
def test_jobs_without_a_fault_are_told_nothing(name: str) -> None:
    assert not told(name).findings()


def test_distinct_keys_of_many_tables_are_to_be_looked_for_once() -> None:
    (finding,) = found(told("uniqued"), "sync-in-loop")
    assert finding.fix is not None
    assert "Call `unique` once" in finding.fix.title
