"""One clock for all ranks: by collectives, as recorded, or by the first step, and it says which."""

from __future__ import annotations

import json

import pytest

from advisor.api import GLOO, draw
from advisor.computed import Computed
from advisor.ranks.common_clock import common_clock
from advisor.ranks.rank_facts import RankFacts
from advisor.trace.read.load import read_bytes

TALKING = """
    step   [1        ][2        ][3        ][4        ]
    cpu    [F ]       [F ]       [F ]       [F ]
    cpu 2     [G    ]    [G    ]    [G    ]    [G    ]
    """
SILENT = """
    step   [1        ][2        ][3        ][4        ]
    cpu    [F ]       [F ]       [F ]       [F ]
    """


def facts(text: str, ahead_us: float = 0.0) -> RankFacts:
    words = {"G": GLOO} if "[G" in text else {}
    drawing = json.loads(json.dumps(dict(draw(text, us=1000, world_size=2, **words))))
    for row in drawing["traceEvents"]:
        if "ts" in row:
            row["ts"] += ahead_us
    return Computed(trace=read_bytes(json.dumps(drawing).encode(), "drawn.json")).get(RankFacts)


@pytest.mark.parametrize("ahead_us", [0.0, 321.0, 5e6])
def test_ends_of_collectives_tell_the_clocks(ahead_us: float) -> None:
    found = common_clock([facts(TALKING), facts(TALKING, ahead_us)])
    assert found.shift_ns == pytest.approx((0, ahead_us * 1000))
    assert "aligned by the ends of collectives" in found.how
    assert found.uncertain_us is not None


def test_without_collectives_clocks_that_overlap_stay() -> None:
    found = common_clock([facts(SILENT), facts(SILENT, 2000.0)])
    assert (found.shift_ns, found.uncertain_us) == ((0, 0), None)
    assert "as recorded" in found.how


def test_clocks_that_nothing_relates_begin_together() -> None:
    found = common_clock([facts(SILENT), facts(SILENT, 9e6)])
    assert (found.shift_ns, found.uncertain_us) == ((0, 9_000_000_000), None)
    assert "first steps of all ranks are drawn at the same time" in found.how


def test_one_rank_keeps_its_own() -> None:
    assert common_clock([facts(SILENT)]).shift_ns == (0,)
