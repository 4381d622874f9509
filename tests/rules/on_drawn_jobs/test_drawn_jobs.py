"""Jobs that people reported, drawn with and without their fault: what once was told wrongly of them."""

from __future__ import annotations

from functools import cache

import pytest
from benchmarks.gpu.drawn_jobs.runtime import MAIN, Runtime
from benchmarks.gpu.drawn_jobs.seventh_set import JOBS, Job, adamw, backward, block, run
from drawn_loops import found, report

from advisor.model import Report


@cache
def told(name: str) -> tuple[Report, float, float]:
    """What is said, the step, and what it is without the fault (µs)."""
    job = next(one for one in JOBS if one.name == name)
    slow = run(job)
    return report(slow.trace()), slow.step_us(), run(job, fixed=True).step_us()


def drawn(step: object, steps: int = 8) -> Report:
    """What is said of another loop."""
    job = Job("drawn", JOBS[0].device, step, "", steps=steps)  # type: ignore[arg-type]
    return report(run(job).trace())


def share(said: Report, part: str) -> float:
    """Of the step."""
    return sum(item.share for item in said.breakdown if item.id == part)


def test_lengths_that_compile_again_are_no_start_up_and_in_no_share() -> None:
    said, _, usual_us = told("recompiled")
    (finding,) = found(said, "recompiles")
    assert "2 times in 8 profiled steps" in finding.message
    assert said.step_us == pytest.approx(usual_us, rel=0.02)
    assert share(said, "compute") > 0.95
    assert not found(said, "idle-gpu")


def test_one_longer_step_is_in_no_share_of_the_others() -> None:
    """A host that waits and computes in one step of eight; the first of eight, which waits longest for its batch."""

    def once(rt: Runtime, _: bool) -> None:
        for _ in range(16):
            block(rt, 0, 500)
        backward(rt, 16, 500)
        if rt.number == 4:
            rt.read()
            rt.host(20_000)

    said = drawn(once)
    (note,) = [item for item in said.health if item.id == "stalled-steps"]
    assert "mean of the others" in note.message
    assert "may have delayed it" in note.message
    assert share(said, "compute") > 0.97

    said, step_us, usual_us = told("starved")
    (finding,) = found(said, "input-bound")
    assert finding.saving is not None
    assert finding.saving.high_us == pytest.approx(step_us - usual_us, rel=0.05)


@pytest.mark.parametrize(
    ("name", "category", "said"),
    [
        ("validate", "user_annotation", "most of it in the range `validate`"),
        ("train.py(74): save_previews", "python_function", "most of it in save_previews() at train.py:74"),
        ("nccl:barrier", "user_annotation", "may have delayed it"),
    ],
)
def test_one_longer_step_says_what_it_is_spent_in(name: str, category: str, said: str) -> None:
    def once(rt: Runtime, _: bool) -> None:
        for _ in range(16):
            block(rt, 0, 500)
        backward(rt, 16, 500)
        if rt.number == 4:
            with rt.span(name, category):
                rt.read()
                rt.host(60_000)

    (note,) = [item for item in drawn(once).health if item.id == "stalled-steps"]
    assert said in note.message


@pytest.mark.parametrize("kind", ["update", "batch", "lengths"])
def test_longer_steps_that_come_again_stay(kind: str) -> None:
    """The update of eight added gradients, workers that are late for one batch of eight, lengths that vary."""

    def step(rt: Runtime, _: bool) -> None:
        start = rt.now
        rt.host(30_000 if kind == "batch" and rt.number == 5 else 100)
        rt.row("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "user_annotation", start, rt.now)
        us = (500, 700, 450, 620, 550, 880, 400, 600)[rt.number] if kind == "lengths" else 500
        for number in range(16):
            block(rt, number, us)
        backward(rt, 16, us)
        if kind == "update" and rt.number == 7:
            adamw(rt, 25_000)
        rt.read()

    said = drawn(step)
    assert said.steps.count == 8
    assert not [item for item in said.health if item.id == "stalled-steps"]


def test_what_a_decoder_reads_is_needed_before_the_epoch_ends() -> None:
    said, step_us, usual_us = told("decode")
    (finding,) = found(said, "sync-in-loop")
    assert finding.fix is not None
    assert "epoch" not in finding.fix.after
    assert "next iteration" in finding.fix.title
    assert finding.saving is not None
    assert finding.saving.high_us == pytest.approx(step_us - usual_us, rel=0.05)


def test_checkpointed_blocks_are_no_evaluation() -> None:
    said, step_us, usual_us = told("checkpointed")
    assert not found(said, "evaluation-with-gradients")
    (finding,) = found(said, "recomputed-activations")
    assert finding.saving is not None
    assert 0.8 * (step_us - usual_us) < finding.saving.high_us <= step_us - usual_us


def test_gathers_that_wait_without_a_recorded_call_are_replayed() -> None:
    """The stream of the gathers waits for the layer before; no call in the drawing says so."""
    said, step_us, usual_us = told("gathered")
    assert said.replay is not None
    assert said.replay.error_share < 0.01
    (finding,) = found(said, "exposed-communication")
    assert finding.saving is not None
    assert finding.saving.high_us == pytest.approx(step_us - usual_us, rel=0.05)


def test_no_model_promises_anything_where_the_replay_misses() -> None:
    """Another process has the GPU for 3 ms before each block, which no row shows; copies wait for each kernel."""

    def step(rt: Runtime, _: bool) -> None:
        for _ in range(16):
            rt.free[MAIN] = max(rt.free[MAIN], rt.now) + 3_000
            block(rt, 0, 500)
        for _ in range(8):
            with rt.span("aten::to"), rt.span("aten::copy_"):
                rt.copy(50_000_000, "DtoH", "Pageable")
        rt.host(2_000)

    said = drawn(step)
    assert said.replay is not None
    assert said.replay.error_share > 0.05
    findings = [finding for _, finding in said.findings()]
    assert findings
    assert all(finding.saving is None or finding.saving.basis != "modelled" for finding in findings)


@pytest.mark.parametrize("name", ["evaluated", "denoised", "rescaled"])
def test_nothing_is_said_where_nothing_is_wrong(name: str) -> None:
    said, _, usual_us = told(name)
    assert not list(said.findings())
    assert said.step_us == pytest.approx(usual_us, rel=0.02)
