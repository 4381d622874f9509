"""Which sets of ranks send equal messages, and how long: late ranks and other messages do not count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from msgspec.structs import replace

from advisor.api import Ranks
from advisor.ranks.links import alike
from advisor.ranks.matching import Meetings
from advisor.report import compared_ranks

STEPS = 4
STEP_US = 100_000.0


def _meeting(ranks: tuple[int, ...], sends_us: float, late_us: float = 0.0, size: int = 1_000) -> Meetings:
    """One all-reduce in each step that is sent for so long once the last rank has come, late_us after the others."""
    start = np.arange(STEPS)[:, None] * 100_000_000 + np.zeros((1, len(ranks)), np.int64)
    start[:, -1] += int(late_us * 1e3)
    end = np.repeat(start[:, -1:] + int(sends_us * 1e3), len(ranks), axis=1)
    elements = np.full((STEPS, len(ranks)), size)
    kinds = ("all_reduce",) * STEPS
    steps, zeros = np.arange(STEPS), np.zeros(STEPS, np.int64)
    return Meetings(ranks, str(ranks), kinds, steps, zeros, start, end, elements, elements, elements * 4)


def _ranks(*meetings: Meetings, uncertain_us: float = 0.0) -> Ranks:
    late = tuple((one.start_ns - one.start_ns.min(axis=1, keepdims=True)) / 1e3 for one in meetings)
    waiting = SimpleNamespace(late_us=late, uncertain_us=uncertain_us)
    job = SimpleNamespace(
        meetings=meetings, waiting=waiting, steps=tuple(map(str, range(STEPS))), ranks=tuple(range(10, 26))
    )
    return cast("Ranks", job)


def _found(ranks: Ranks, node: tuple[int, ...] | None) -> list[Any]:
    return list(compared_ranks._links(ranks, node, 0.05 * STEP_US))


PAIRS = [(0, 1), (2, 3), (4, 5), (6, 7)]
NODES = (0, 0, 1, 1, 2, 2, 3, 3)


def test_a_slow_set_is_told_with_the_numbers_of_its_ranks() -> None:
    meetings = [_meeting(pair, 20_000.0 if pair == (4, 5) else 8_000.0) for pair in PAIRS]
    (found,) = _found(_ranks(*meetings), NODES)
    assert (found.within, found.ranks, found.sets, found.sent_us, found.most_us) == (True, 2, 4, 8_000.0, 20_000.0)
    (slow,) = found.slow
    assert (slow.ranks, slow.nodes, slow.sent_us, slow.more_us) == ((14, 15), (2,), 20_000.0, 12_000.0)
    (unknown,) = _found(_ranks(*meetings), None)
    assert (unknown.within, unknown.slow[0].nodes) == (None, ())


def test_sets_within_and_between_nodes_are_apart() -> None:
    within = [_meeting(pair, 1_000.0) for pair in PAIRS]
    between = [_meeting(pair, 9_000.0) for pair in [(0, 2), (1, 3), (4, 6), (5, 7)]]
    found = _found(_ranks(*within, *between), NODES)
    assert [(one.within, one.sets, one.sent_us, one.slow) for one in found] == [
        (True, 4, 1_000.0, ()),
        (False, 4, 9_000.0, ()),
    ]


@pytest.mark.parametrize(
    ("slow_us", "late_us", "size", "uncertain_us"),
    [
        (8_000.0, 30_000.0, 1_000, 0.0),  # a rank that comes late sends no longer
        (40_000.0, 0.0, 9_000, 0.0),  # a larger message has no like
        (11_000.0, 0.0, 1_000, 0.0),  # 3 % of the step
        (20_000.0, 0.0, 1_000, 15_000.0),  # the clocks may be that far apart
    ],
)
def test_what_is_no_slow_link(slow_us: float, late_us: float, size: int, uncertain_us: float) -> None:
    usual = [_meeting(pair, 8_000.0) for pair in PAIRS[1:]]
    other = _meeting(PAIRS[0], slow_us, late_us, size)
    assert [one.slow for one in _found(_ranks(other, *usual, uncertain_us=uncertain_us), NODES)] == [()]


def test_two_alike_are_not_compared_and_clocks_must_be_known() -> None:
    two = _ranks(_meeting((0, 1), 8_000.0), _meeting((2, 3), 30_000.0))
    assert list(alike(two, NODES)) == []
    blind = cast("Ranks", SimpleNamespace(**{**vars(two), "waiting": None}))
    assert list(alike(blind, NODES)) == []


def test_what_one_rank_sends_to_all_does_not_count() -> None:
    meetings = [replace(_meeting(pair, 8_000.0), kind=("broadcast",) * STEPS) for pair in PAIRS]
    assert list(alike(_ranks(*meetings), NODES)) == []
