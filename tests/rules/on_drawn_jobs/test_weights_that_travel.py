"""What the thirtieth set of drawn jobs showed of optimizers in parts: over ranks, and in the host's memory."""

from __future__ import annotations

from functools import cache

from benchmarks.gpu.drawn_jobs import thirtieth_set
from drawn_loops import found, report

from advisor.model import Report


@cache
def drawn(name: str, *, fixed: bool = False) -> tuple[Report, float]:
    """What is said of a job, and what its step takes, µs."""
    job = next(one for one in thirtieth_set.JOBS if one.name == name)
    rt = thirtieth_set.run(job, fixed=fixed)
    return report(rt.trace()), rt.step_us()


def gain_us(name: str) -> float:
    """What the job takes more than without its fault."""
    return drawn(name)[1] - drawn(name, fixed=True)[1]


def test_weights_that_ranks_send_behind_the_update_are_no_buckets() -> None:
    """No row names the optimizer: what is sent is more than the update of this rank can have gone over."""
    (finding,) = found(drawn("redundant")[0], "exposed-communication")
    assert finding.message.startswith("An optimizer whose states are cut over ranks updates a part of the weights")
    assert "296 broadcasts a step" in finding.message
    assert finding.fix is not None
    assert finding.fix.title.startswith("Update all parameters on every rank")
    assert "bucket_cap_mb" not in finding.fix.title + finding.fix.after
    assert finding.saving is not None
    assert 0.9 * gain_us("redundant") < finding.saving.high_us < 1.1 * gain_us("redundant")
    assert not found(drawn("redundant", fixed=True)[0], "exposed-communication")


def test_an_optimizer_on_the_host_is_told_once_with_its_copies_and_waits() -> None:
    told = drawn("zerooff")[0]
    ((outcome, finding),) = told.findings()
    assert outcome.rule == "idle-gpu"
    assert "`DeepSpeedCPUAdam` updates weights on the host. Gradients go there and weights come back" in finding.message
    assert finding.saving is not None
    assert finding.saving.low_us == 0
    assert gain_us("zerooff") <= finding.saving.high_us < 1.1 * gain_us("zerooff")
    assert not found(drawn("zerooff", fixed=True)[0], "idle-gpu")
