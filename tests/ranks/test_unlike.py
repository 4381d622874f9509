"""Ranks of several jobs are told from those of one by what they sum over all ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from advisor.api import GLOO, NEXT, Ranks, draw
from advisor.computed import Computed
from advisor.ranks.rank_facts import RankFacts
from advisor.ranks.unlike import unlike, without_waiting
from advisor.trace.read.load import load, read_bytes

DLRM = Path(__file__).parents[2].parent / "shared" / "traces" / "dlrm_8ranks_v100"
TEXT = """
    step   [1                             ][2                             ][3                             ]
    cpu    [D][F ][B ]                     [D][F ][B ]                     [D][F ][B ]
    cpu 2  [G ]       [G                 ] [G ]       [G                 ] [G ]       [G                 ]
    """


def _ranks(*sizes: tuple[int, ...], world: int = 0, kind: str = "all_reduce") -> Ranks:
    """Ranks with two collectives in each of three steps, of so many elements."""
    drawn: dict[str, Any] = dict(draw(TEXT, us=1000, world_size=len(sizes), D=NEXT, G=GLOO))
    facts = Computed(trace=read_bytes(json.dumps(drawn).encode(), "drawn.json")).get(RankFacts)
    assert facts.talks.step.tolist() == [0, 0, 1, 1, 2, 2]
    several = []
    for mine in sizes:
        talks = replace(
            facts.talks,
            kind=(kind,) * 6,
            sent=np.array(mine, np.int64),
            members=np.full(6, world or len(sizes), np.int64),
        )
        several.append(replace(facts, talks=talks))
    return Ranks.of(range(len(sizes)), several, 0)


def test_sets_of_ranks_with_other_sizes_in_every_step_are_told() -> None:
    one, other = (5, 7) * 3, (5, 9) * 3
    assert unlike(_ranks(one, one, other, one)) == ((0, 1, 3), (2,))
    ranks, said = without_waiting(_ranks(one, one, other, one))
    assert said.startswith("ranks 0, 1, 3 and rank 2 sum different sizes")
    assert (ranks.waiting, ranks.why.partition(";")[0]) == (None, said)


@pytest.mark.parametrize(
    "sizes",
    [
        ((5, 7) * 3, (5, 7) * 3),
        ((5, 7) * 3, (7, 5) * 3),  # another order in a step
        ((5, 7, 5, 7, 5, 7), (5, 7, 5, 9, 5, 9)),  # one step in common is enough
        ((5, 7) * 3, (-1,) * 6),  # sizes that a trace does not tell
    ],
)
def test_ranks_that_may_be_of_one_job_are_not(sizes: tuple[tuple[int, ...], ...]) -> None:
    ranks = _ranks(*sizes)
    assert unlike(ranks) == ()
    assert without_waiting(ranks) == (ranks, "")


def test_other_collectives_may_differ_and_missing_ranks_leave_it_open() -> None:
    one, other = (5, 7) * 3, (5, 9) * 3
    assert unlike(_ranks(one, other, kind="all_to_all")) == ()
    assert unlike(_ranks(one, other, world=3)) == ()


@pytest.mark.skipif(not DLRM.is_dir(), reason="the real traces do not lie beside this checkout")
def test_eight_real_ranks_are_of_one_job() -> None:
    facts = [Computed(trace=load(path)).get(RankFacts) for path in sorted(DLRM.iterdir())]
    assert unlike(Ranks.of(range(len(facts)), facts, 0)) == ()
