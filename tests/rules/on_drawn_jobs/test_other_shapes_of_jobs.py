"""Jobs in shapes that people profile less often: what once was told wrongly of them, or not at all."""

from __future__ import annotations

from functools import cache

import pytest
from benchmarks.gpu.drawn_jobs.ninth_set import JOBS, run
from drawn_loops import found, report

from advisor.model import Finding, Report

_READ_LATER = "read the value every N steps"


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


def high_us(finding: Finding) -> float:
    """The high end of what it saves."""
    assert finding.saving is not None
    return finding.saving.high_us


def title(finding: Finding) -> str:
    """What is to be done."""
    return finding.fix.title if finding.fix else ""


def test_activations_that_go_to_the_host_and_back_are_no_batch_and_no_results() -> None:
    said, step_us, usual_us = told("offloaded")
    both = [only(said, "pageable-copies"), only(said, "blocking-copies")]
    assert {title(one) for one in both} == {
        "Keep activations on the GPU if they fit, else offload them to pinned memory on a stream of its own"
    }
    assert sum(map(high_us, both)) == pytest.approx(step_us - usual_us, rel=0.1)


@pytest.mark.parametrize(("name", "op"), [("decoded", "image::decode_jpegs_cuda"), ("sparse", "SubMConvFunction")])
def test_an_op_that_waits_for_its_own_result_is_called_less_often(name: str, op: str) -> None:
    finding = only(told(name)[0], "sync-in-loop")
    assert title(finding).startswith(f"Call `{op}` fewer times")
    assert finding.saving is not None
    assert finding.saving.low_us == 0


def test_tokens_of_rollouts_are_read_when_the_next_one_is_launched() -> None:
    said, step_us, usual_us = told("rollouts")
    finding = only(said, "sync-in-loop")
    assert "when the next iteration is launched" in title(finding)
    assert high_us(finding) == pytest.approx(step_us - usual_us, rel=0.05)


def test_convolutions_in_fp32_beside_a_model_in_bf16() -> None:
    said, step_us, usual_us = told("encoded")
    finding = only(said, "fp32-matmul")
    assert "Convolutions in fp32, beside a model in bf16" in finding.message
    assert finding.saving is not None
    assert finding.saving.low_us <= step_us - usual_us <= finding.saving.high_us


def test_copies_that_the_host_waits_for_where_no_row_says_from_which_memory() -> None:
    said, step_us, usual_us = told("moved")
    assert high_us(only(said, "pageable-copies")) == pytest.approx(step_us - usual_us, rel=0.05)


def test_a_read_on_an_xpu() -> None:
    said, step_us, usual_us = told("waited")
    finding = only(said, "sync-in-loop")
    assert _READ_LATER in title(finding)
    assert high_us(finding) == pytest.approx(step_us - usual_us, rel=0.05)


@pytest.mark.parametrize("name", [job.name for job in JOBS if job.truth.startswith("nothing")])
def test_nothing_is_said_where_nothing_is_wrong(name: str) -> None:
    assert not list(told(name)[0].findings())
