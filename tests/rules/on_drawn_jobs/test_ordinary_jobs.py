"""What the twelfth set of drawn jobs showed: ordinary jobs, as people send traces of them."""

from __future__ import annotations

import pytest
from benchmarks.gpu.drawn_jobs import kineto, twelfth_set
from benchmarks.gpu.drawn_jobs.layers import REDUCE
from benchmarks.gpu.drawn_jobs.twelfth_set.rows import Framed
from drawn_loops import found, report


def drawn(name: str, *, fixed: bool = False) -> Framed:
    """Some steps of a job."""
    return twelfth_set.run(next(job for job in twelfth_set.JOBS if job.name == name), fixed=fixed)


def test_a_cell_in_a_loop_is_told_without_lines() -> None:
    slow, fast = drawn("stepped"), drawn("stepped", fixed=True)
    (finding,) = found(report(slow.trace()), "tensor-loop")
    assert finding.fix is not None
    assert "nn.LSTM" in finding.fix.title
    assert finding.saving is not None
    gain_us = slow.step_us() - fast.step_us()
    assert finding.saving.low_us == 0
    assert 0.6 * gain_us < finding.saving.high_us <= 1.05 * gain_us
    assert not found(report(fast.trace()), "tensor-loop")


@pytest.mark.parametrize("decodes", [True, False])
def test_a_cell_whose_input_the_turn_before_chose_is_left(decodes: bool) -> None:
    """A decoder: its next input is an embedding of what it just chose. Nothing else tells it from a loop over parts."""
    rt = Framed(kineto.A100, shapes=False)
    cell = "void at::native::(anonymous namespace)::kernel::lstm_cell_forward<float, float, int, 1>(…)"
    for _ in range(4):
        with rt.step():
            for _ in range(40):
                rt.op("aten::select", us=2)
                if decodes:
                    rt.op("aten::embedding", run=((REDUCE, 3),))
                run = (("ampere_sgemm_32x128_tn", 20), ("ampere_sgemm_32x128_tn", 20), (cell, 4))
                rt.op("aten::lstm_cell", us=12, run=run)
            rt.value()
    assert bool(found(report(rt.trace()), "tensor-loop")) is not decodes


def test_copies_of_a_batch_and_a_mask_that_the_host_needs_are_not_one_wait() -> None:
    """Pageable pictures and targets, and a mask of suppressed boxes: the first are told, as what they are."""
    said = report(drawn("detected").trace())
    assert found(said, "pageable-copies")
    assert not [one for one in found(said, "sync-in-loop") if one.fix and "less often" in one.fix.title]


def test_forty_small_copies_from_pageable_memory_are_one_finding() -> None:
    said = report(drawn("recommended").trace())
    (finding,) = found(said, "small-copies")
    assert "waiting for each" in finding.message
    assert not [rule for rule in ("pageable-copies", "blocking-copies", "sync-in-loop") if found(said, rule)]
