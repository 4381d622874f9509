"""What the thirteenth and fourteenth sets of drawn jobs showed: jobs as people report them, and cold first steps."""

from __future__ import annotations

import pytest
from benchmarks.gpu.drawn_jobs import fourteenth_set, thirteenth_set
from benchmarks.gpu.drawn_jobs.twelfth_set.rows import Framed
from drawn_loops import found, report


def drawn(name: str, *, fixed: bool = False) -> Framed:
    """Some steps of a job."""
    of_set = next(one for one in (thirteenth_set, fourteenth_set) if name in [job.name for job in one.JOBS])
    return of_set.run(next(job for job in of_set.JOBS if job.name == name), fixed=fixed)


def test_an_optimizer_on_the_host_is_named_with_the_time_for_which_the_device_waits() -> None:
    slow, fast = drawn("offloaded_shards"), drawn("offloaded_shards", fixed=True)
    told = report(slow.trace())
    (finding,) = found(told, "loop-optimizer")
    assert "on the host" in finding.message
    assert not found(told, "idle-gpu")
    assert finding.saving is not None
    assert finding.saving.low_us <= slow.step_us() - fast.step_us() <= finding.saving.high_us
    assert not found(report(fast.trace()), "loop-optimizer")


@pytest.mark.complete
def test_parts_taken_one_by_one_have_gradients_of_the_whole_size() -> None:
    slow, fast = drawn("scanned"), drawn("scanned", fixed=True)
    (finding,) = found(report(slow.trace()), "gradients-of-parts")
    assert finding.saving is not None
    assert finding.saving.high_us <= slow.step_us() - fast.step_us()
    assert finding.saving.low_us > 0.8 * (slow.step_us() - fast.step_us())
    assert not found(report(fast.trace()), "gradients-of-parts")


@pytest.mark.variants(1)
@pytest.mark.parametrize("name", ["script", "printed"])
def test_a_cold_start_is_in_no_share(name: str) -> None:
    job = drawn(name)
    told = report(job.trace())
    steady_us = (job.ends[-1] - job.ends[0]) / (len(job.ends) - 1)
    assert told.step_us == pytest.approx(steady_us, rel=0.02)
    assert "start-up" in [item.id for item in told.health]


@pytest.mark.variants(1)
@pytest.mark.parametrize("name", ["script", "eightbit", "overlapped"])
def test_nothing_is_said_where_nothing_is_wrong(name: str) -> None:
    assert not [outcome.rule for outcome, _ in report(drawn(name).trace()).findings()]


def test_reads_that_follow_one_another_are_told_as_one() -> None:
    """Without one of them the host waits in the next: only without all of them the step saves what they cost."""

    class Unread(Framed):
        def value(self, outer: str = "aten::item", memory: str = "Pageable") -> None:
            """No value is read."""

    job = next(job for job in thirteenth_set.JOBS if job.name == "metered")
    slow, fast = Framed(job.device), Unread(job.device)
    for rt in (slow, fast):
        for _ in range(job.steps):
            with rt.step():
                job.step(rt, False)
    (finding,) = found(report(slow.trace()), "sync-in-loop")
    assert "`.item()` and `is_nonzero` make the host wait for the GPU 21 times" in finding.message
    assert finding.saving is not None
    gain_us = slow.step_us() - fast.step_us()
    assert 0.7 * gain_us < finding.saving.high_us <= 1.1 * gain_us


def test_a_thread_that_pins_while_the_loop_waits_is_named() -> None:
    (finding,) = found(report(drawn("late").trace()), "idle-gpu")
    assert "another thread calls `cudaHostAlloc`" in finding.message
    assert not found(report(drawn("late", fixed=True).trace()), "idle-gpu")


def test_batches_in_float64_that_the_device_converts_are_named() -> None:
    (finding,) = found(report(drawn("doubled").trace()), "pageable-copies")
    assert "268 MB a step are float64" in finding.message
    assert finding.fix is not None
    assert finding.fix.title.startswith("Convert to float32 before the copy")


@pytest.mark.parametrize(
    ("name", "says"), [("normalized", "GradScaler"), ("anomalous", "anomaly detection"), ("shown", ".tolist()")]
)
def test_values_that_pytorch_reads_itself_are_not_to_be_accumulated(name: str, says: str) -> None:
    (finding,) = found(report(drawn(name).trace()), "sync-in-loop")
    assert finding.fix is not None
    assert says in finding.fix.title


@pytest.mark.variants(1)
@pytest.mark.parametrize("name", ["summed", "fetched", "pretrained", "lossy"])
def test_nothing_is_said_of_jobs_without_a_fault(name: str) -> None:
    assert not [outcome.rule for outcome, _ in report(drawn(name).trace()).findings()]
