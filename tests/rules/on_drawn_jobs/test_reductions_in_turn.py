"""What the twenty-fourth set of drawn jobs showed about reductions of gradients."""

from __future__ import annotations

from functools import cache

import pytest
from benchmarks.gpu.drawn_jobs import twenty_fourth_set
from drawn_loops import found, report

from advisor.model import Report


@cache
def drawn(name: str) -> Report:
    job = next(one for one in twenty_fourth_set.JOBS if one.name == name)
    return report(twenty_fourth_set.run(job).trace())


def test_reductions_that_hooks_launch_in_line_are_to_run_beside_the_backward_pass() -> None:
    (finding,) = found(drawn("inline"), "exposed-communication")
    assert finding.fix is not None
    assert finding.fix.title.startswith("Let reductions run beside the backward pass")
    assert "overlap_comm" in finding.fix.after


@pytest.mark.complete
def test_half_of_the_bytes_save_no_more_than_half_of_the_time_they_travel() -> None:
    (finding,) = found(drawn("unsynced"), "exposed-communication")
    assert finding.fix is not None
    assert finding.saving is not None
    assert "bf16" in finding.fix.title
    assert finding.facts["communication_us"] / 2 == pytest.approx(finding.saving.high_us, rel=0.02)
    assert finding.saving.high_us < finding.facts["exposed_us"]
