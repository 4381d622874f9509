"""One of few steps that is far longer than the others: said, and nothing promised of what only it has."""

from __future__ import annotations

import pytest
from drawn_loops import found, report
from host_and_device import Machine

_GEMM = "ampere_bf16_s16816gemm_bf16_128x128_tn"


def _loop(sorted_us: tuple[float, ...]) -> Machine:
    """Steps whose batch is sorted on the host before anything is launched."""
    machine = Machine()
    for us in sorted_us:
        with machine.step():
            with machine.op("aten::sort"):
                machine.python(us)
            for _ in range(20):
                with machine.op("aten::linear"), machine.op("aten::addmm"):
                    machine.work(_GEMM, 200)
            machine.call("cudaDeviceSynchronize", waits=True)
    return machine


def _said(*sorted_us: float) -> tuple[list[str], bool]:
    """Names of the notes, and whether the sorting is given a saving."""
    told = report(_loop(sorted_us).trace())
    (finding,) = [one for one in found(told, "idle-gpu") if "aten::sort" in one.message]
    return [note.id for note in told.health], finding.saving is not None


@pytest.mark.parametrize("sorted_us", [(300, 300, 9_000), (9_000, 310), (300, 9_000, 320, 310)])
def test_a_longer_step_promises_nothing(sorted_us: tuple[float, ...]) -> None:
    notes, promised = _said(*sorted_us)
    assert "uneven-steps" in notes
    assert not promised


@pytest.mark.parametrize("sorted_us", [(3_000, 3_000, 3_300), (3_000, 3_200), (2_000, 5_000, 3_500)])
def test_steps_that_vary_are_what_they_are(sorted_us: tuple[float, ...]) -> None:
    notes, promised = _said(*sorted_us)
    assert "uneven-steps" not in notes
    assert promised
