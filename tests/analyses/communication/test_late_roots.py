"""Broadcasts that wait for the rank that sends: drawn by hand, with times that are known."""

from __future__ import annotations

import json

import pytest

from advisor.analyses.communication.late_roots import LateRoots
from advisor.computed import Computed
from advisor.drawing.events import Ev
from advisor.drawing.timeline import draw
from advisor.trace.read.load import read_bytes

# A broadcast lasts 30, 21 and 21 ms (a box of n columns is n ms), an all-reduce 1 ms, and no kernel runs beside.
STEPS = """
    step   [1                                     ][2                            ][3                            ]
    cpu    [T ]                           [F ][A ] [T ]                  [F ][A ] [T ]                  [F ][A ]
    gpu 7                                  [K ]                           [K ]                           [K ]
    gpu 20  [R                           ]     [N]  [R                  ]     [N]  [R                  ]     [N]
    """


def kernel(name: str, elements: int, fill: float = 1.0) -> Ev:
    about = {"Collective name": name, "dtype": "Float", "In msg nelems": elements, "Group size": 4}
    return Ev(f"ncclDevKernel_{name}(ncclDevKernelArgsStorage<4096ul>)", "kernel", fill=fill, args=about)


def roots(sent: int, asks: str = "c10d::broadcast_", name: str = "broadcast") -> LateRoots:
    drawn = draw(
        STEPS,
        us=1000,
        world_size=4,
        T=Ev(asks, launches="collective"),
        F=Ev("aten::linear"),
        A=Ev("c10d::allreduce_", launches="collective"),
        K=Ev("ampere_sgemm_128x64_tn", "kernel"),
        R=kernel(name, sent),
        N=kernel("allreduce", 1_000_000, 1 / 3),
    )
    return Computed(trace=read_bytes(json.dumps(dict(drawn)).encode(), "rank1.pt.trace.json")).get(LateRoots)


def test_what_they_wait_is_what_a_collective_with_more_bytes_does_not_need() -> None:
    found = roots(2)
    assert found.calls == 1
    assert found.bytes == 8
    assert found.needs_us == pytest.approx(1000)
    assert found.waited_us == pytest.approx((29 + 20 + 20) / 3 * 1000)
    assert found.usual_us == pytest.approx(20_000)
    assert not found.dispatched
    assert not found.reads


def test_one_of_more_bytes_than_anything_else_may_need_its_time() -> None:
    assert not len(roots(50_000_000).rows)


def test_a_reduction_waits_for_all_ranks_and_not_for_one_that_sends() -> None:
    assert not len(roots(2, "c10d::allreduce_", "allreduce").rows)
