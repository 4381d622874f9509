"""What the nineteenth set of drawn jobs showed: loops over experts, what is kept on the host, what grows."""

from __future__ import annotations

import functools

import pytest
from benchmarks.gpu.drawn_jobs import nineteenth_set
from drawn_loops import found, report

from advisor.model import Finding, Report


@functools.cache
def told(name: str) -> Report:
    """What is said of a job."""
    job = next(job for job in nineteenth_set.JOBS if job.name == name)
    return report(nineteenth_set.run(job).trace())


def gain_us(name: str) -> float:
    """What the job takes longer than without its fault."""
    job = next(job for job in nineteenth_set.JOBS if job.name == name)
    return nineteenth_set.run(job).step_us() - nineteenth_set.run(job, fixed=True).step_us()


def first(said: Report) -> tuple[str, Finding]:
    """The first advice."""
    outcome, finding = next(iter(said.findings()))
    return outcome.rule, finding


@pytest.mark.variants(3)
@pytest.mark.parametrize(
    ("name", "rule", "words", "fix", "near"),
    [
        ("cpu_adam", "idle-gpu", "`DeepSpeedCPUAdam` updates weights on the host", "Keep the optimizer's states", 0.2),
        ("hoarded", "slowing-steps", "`aten::cat` takes longer with every step", "Keep a running sum", 0.1),
        # The high end has fused kernels as good as published ones; those of heads of 256 numbers are not.
        ("softcapped", "unfused-attention", "op by op 26 times", "Use FlexAttention", 0.3),
        ("blocking", "blocking-launches", "CUDA_LAUNCH_BLOCKING=1", "Unset `CUDA_LAUNCH_BLOCKING`", 0.1),
        (
            "moe_loop",
            "launch-bound",
            "32 times `where`, `index`, `linear`",
            "Compute the 32 experts by one grouped",
            0.2,
        ),
        ("sequential", "pageable-copies", "weights come layer by layer", "Keep the weights on the GPU", 0.2),
    ],
)
def test_the_cause_is_told_first_with_about_its_gain(name: str, rule: str, words: str, fix: str, near: float) -> None:
    """near: how far the high end may be from what the job without the fault saves."""
    told_rule, finding = first(told(name))
    assert told_rule == rule
    assert words in finding.message
    assert finding.fix is not None
    assert finding.fix.title.startswith(fix)
    assert finding.saving is not None
    assert finding.saving.high_us == pytest.approx(gain_us(name), rel=near)


@pytest.mark.complete
def test_what_is_told_by_its_cause_is_told_once() -> None:
    assert not found(told("blocking"), "launch-bound")
    assert not found(told("sequential"), "small-copies")
    assert not found(told("adafactored"), "launch-bound")


@pytest.mark.variants(1)
@pytest.mark.parametrize("name", ["titan", "replayed_vit", "rccl", "vectors", "lightning"])
def test_jobs_without_a_fault_are_told_nothing(name: str) -> None:
    assert not told(name).findings()
