"""Broadcasts of weights within an optimizer's step or behind it: drawn by hand."""

from __future__ import annotations

import json

import pytest

from advisor.analyses.communication.callers import Callers
from advisor.computed import Computed
from advisor.drawing.events import Ev
from advisor.drawing.timeline import draw
from advisor.trace.read.load import read_bytes

# Two broadcasts (T, S) behind a step (O), which updates (U) within 3 ms; an all-reduce before it.
BEHIND = """
    step   [1                                       ][2                                       ]
    cpu    [F ][A  ][O ]                             [F ][A  ][O ]
    cpu             [U]  [T ][S ]                             [U]  [T ][S ]
    gpu 7   [K    ]    [V ]                           [K    ]    [V ]
    gpu 20      [G    ]   [R       ][N       ]            [G    ]   [R       ][N       ]
    """


def sends(root: int) -> Ev:
    given = {"Concrete Inputs": ["", "", f"{root}", "0", "True", "-1"]}
    return Ev("c10d::broadcast_", launches="collective", dims=[[[1000]]], args=given)


def collective(name: str, elements: int) -> Ev:
    about = {"Collective name": name, "dtype": "Float", "In msg nelems": elements, "Group size": 4}
    return Ev(f"ncclDevKernel_{name}(ncclDevKernelArgsStorage<4096ul>)", "kernel", args=about)


def callers(roots: tuple[int, int], elements: int = 1000, by: str = "SGD") -> Callers:
    drawn = draw(
        BEHIND,
        us=1000,
        world_size=4,
        device="A100",
        A=Ev("c10d::allreduce_", launches="collective"),
        G=collective("allreduce", elements),
        O=Ev(f"Optimizer.step#{by}.step", "user_annotation", launches=""),
        U="aten::_foreach_add_",
        V=Ev("multi_tensor_apply_kernel", "kernel"),
        T=sends(roots[0]),
        S=sends(roots[1]),
        R=collective("broadcast", elements),
        N=collective("broadcast", elements),
    )
    return Computed(trace=read_bytes(json.dumps(dict(drawn)).encode(), "rank1.pt.trace.json")).get(Callers)


def test_they_come_from_several_ranks() -> None:
    sent = callers((0, 3)).sent
    assert sent is not None
    assert sent.calls == 2
    assert sent.bytes == 8000
    assert sent.exposed_us == pytest.approx(20_000, rel=0.15)


def test_one_rank_that_sends_what_it_has_is_another_matter() -> None:
    assert callers((0, 0)).sent is None


def test_the_row_of_the_optimizer_says_it_of_what_is_within() -> None:
    """Behind the row nothing is its own."""
    assert callers((0, 0), by="ZeroRedundancyOptimizer").sent is None


@pytest.mark.parametrize(("elements", "by", "is_told"), [
    (400_000_000, "SGD", True),  # 3 x 3.2 GB in 4 ms are more than 1.6 TB/s
    (150_000_000, "SGD", False),
    (150_000_000, "AdamW", True),  # 7 x 1.2 GB are
    (30_000_000, "AdamW", False),  # caches may hold most of it
])  # fmt: skip
def test_an_update_that_ends_too_soon_is_one_of_a_part(elements: int, by: str, *, is_told: bool) -> None:
    assert (callers((0, 0), elements, by).sent is not None) == is_told
