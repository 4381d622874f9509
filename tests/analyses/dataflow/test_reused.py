"""Ops of an observed step found again in the profiled ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from advisor.api import FORWARD, Ev, Example, Missing, Price, Reused, Trace, draw
from advisor.rules.needless_work._same_result import reuse
from advisor.testing import computed

COS, SIN = Ev("aten::cos"), Ev("aten::sin")
NAMES = ["aten::linear", "aten::cos", "aten::sin"]
STEPS = """
    step   [1                        ][2                        ]
    cpu    [C  ][L  ][C  ][B    ]      [C  ][L  ][S  ][C  ][B   ]
    cpu     [I]                             [I]
    """


def seen(**facts: Any) -> Reused:
    """The rows found in STEPS by this record."""
    drawn = draw(STEPS, us=100, C=COS, S=SIN, L=FORWARD, I=Ev("aten::cos"))
    return computed(Example("steps", drawn, None, facts={"reused": facts})).get(Reused)


def places(reused: Reused, rows: Any) -> list[int]:
    """Rows as places among the outermost ops of all steps."""
    return [reused.ops.tolist().index(row) for row in rows.tolist()]


def test_ops_are_found_by_their_order() -> None:
    """In a step that ran one op more, by the ordinal of their names; ops inside others and nodes are not counted."""
    found = seen(names=NAMES, ops=[1, 0, 1], again=[[2, 0]], constant=[0])
    assert len(found.ops) == 7
    assert (places(found, found.again), places(found, found.first)) == ([2, 6], [0, 3])
    assert places(found, found.constant) == [0, 3]
    assert found.share == 1.0


def test_a_name_that_a_step_runs_less_often_is_not_found_there() -> None:
    found = seen(names=NAMES, ops=[1, 0, 2, 1], again=[[3, 0], [2, 1]], constant=[2])
    assert (places(found, found.again), places(found, found.first)) == ([2, 6, 5], [0, 3, 4])
    assert places(found, found.constant) == [5]


def test_another_kind_of_step_is_not_compared() -> None:
    with pytest.raises(Missing, match="different ops than the profiled steps"):
        seen(names=["aten::relu", "aten::cos"], ops=[0, 0, 0, 1], again=[[3, 1]], constant=[])


def test_a_step_that_accumulates_is_compared_with_one_that_updates() -> None:
    """The observed step ran what the profiled ones did, and an optimizer of more ops after it."""
    found = seen(names=[*NAMES, "aten::addcmul_"], ops=[1, 0, 1, *[3] * 8], again=[[2, 0]], constant=[0, 5])
    assert places(found, found.again)[0] == 2
    assert places(found, found.constant)[0] == 0
    assert found.share == 1.0


def test_what_is_not_known_is_said() -> None:
    with pytest.raises(Missing, match="too many to observe"):
        seen(why="a step has about 60000 ops, too many to observe")
    with pytest.raises(Missing, match="use `advisor run`, and train on"):
        seen()
    found = seen(names=NAMES, ops=[1, 0, 1])
    assert not len(found.again)
    assert not len(found.constant)


def test_the_first_gradient_of_a_backward_pass_is_none() -> None:
    """backward() fills it just before its first node; what the script fills before another op is its own."""
    text = """
    step   [1                    ][2                    ]
    cpu    [O  ][L  ][O  ][B    ]  [O  ][L  ][O  ][B    ]
    """
    facts = {"names": ["aten::ones_like", "aten::linear"], "ops": [0, 1, 0], "again": [[2, 0]], "constant": [0, 2]}
    drawn = draw(text, us=100, O=Ev("aten::ones_like"), L=FORWARD)
    found = computed(Example("steps", drawn, None, facts={"reused": facts})).get(Reused)
    assert places(found, found.constant) == [0, 3]
    assert not len(found.again)


def test_looks_at_other_tensors_do_not_go_with_a_look_that_is_made_again() -> None:
    """A mask in another shape, between the views of what attention reads: its own time is all that it takes."""
    drawn = draw(
        """
        step   [1                            ][2                            ]
        cpu    [r ][L    ][v ][r ][v ][L    ]  [r ][L    ][v ][r ][v ][L    ]
        """,
        us=100,
        L=FORWARD,
        r="aten::reshape",
        v="aten::view",
    )
    names = ["aten::linear", "aten::reshape", "aten::view"]
    facts = {"reused": {"names": names, "ops": [1, 0, 2, 1, 2, 0], "again": [[3, 0]], "constant": []}}
    known = computed(Example("mask", drawn, None, facts=facts))
    reused = known.get(Reused)
    work = reuse(known.get(Price), reused, None, reused.again, reused.first)
    assert work.us == pytest.approx(400)


def test_an_op_of_the_step_before_is_found_there() -> None:
    """In the first step, whose step before is not in the trace, the same op of its own stands for it."""
    found = seen(names=NAMES, ops=[1, 0, 1], again=[[0, -1]])
    assert (places(found, found.again), places(found, found.first)) == ([0, 3], [2, 2])
    assert found.over.tolist() == [True, True]


def test_casts_are_found_in_the_calls_that_autocast_made_them_for() -> None:
    drawn = draw(
        """
        step   [1                           ][2                           ]
        cpu    [L       ][R ][L           ]   [L       ][R ][L           ]
        cpu     [T ][L ]      [T ][T ][L ]     [T ][L ]      [T ][T ][L ]
        """,
        us=100,
        L=FORWARD,
        R=Ev("aten::relu"),
        T=Ev("aten::to"),
    )
    facts = {"reused": {"names": ["aten::linear", "aten::relu"], "ops": [0, 1, 0], "casts": [(2, 1, 0, 0)]}}
    known = computed(Example("casts", drawn, None, facts=facts))
    found, events = known.get(Reused), known.get(Trace).events
    assert [events.text(row) for row in found.again.tolist()] == ["aten::to"] * 2
    starts = events.start_ns[np.stack((found.again, found.first))] - events.start_ns[found.ops[0]]
    assert (starts[0] - starts[1]).tolist() == [1_800_000] * 2  # from the one cast to the second of the other call
    # Both calls are taken apart, so that the parts of the backward pass can be told.
    assert [events.text(row).removeprefix("aten::") for row in found.ops[:6].tolist()] == [
        *("to", "linear", "relu", "to", "to", "linear")
    ]


def test_what_an_interrupted_step_adds_is_no_part_of_an_undisturbed_one() -> None:
    """An op of 400 µs after one of 900 µs; in one of three steps another process had the core for 2 ms of it."""
    drawn = draw(
        """
        step   [1          ][2                              ][3          ]
        cpu    [L      ][S ][L      ][S                    ] [L      ][S ]
        """,
        us=100,
        L=FORWARD,
        S=SIN,
    )
    facts = {"reused": {"names": NAMES, "ops": [0, 2], "again": [[1, 0]], "constant": []}}
    known = computed(Example("steps", drawn, None, facts=facts))
    reused, price = known.get(Reused), known.get(Price)
    work = reuse(price, reused, None, reused.again, reused.first)
    row_us = price.deprofiled.most_row_us
    assert work.undisturbed == pytest.approx(((400 - row_us) / (1300 - 2 * row_us), 400 / 1300))
    assert work.saving.high_us / price.scale.step_us > 0.5
