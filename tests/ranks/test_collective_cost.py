"""Collectives on other numbers of ranks: formulas by hand, and messages counted one by one."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.analyses.communication.callers import CollectiveRate
from advisor.ranks.collective_cost import CollectiveCost, rounds, volume


def ring(ranks: int) -> tuple[int, float]:
    """(rounds, parts of the message that a rank sends) of a gather in a ring, played: all pass on what came last."""
    held = [{rank} for rank in range(ranks)]
    last = list(range(ranks))
    count, sent = 0, 0.0
    while any(len(one) < ranks for one in held):
        last = [last[rank - 1] for rank in range(ranks)]
        for rank, part in enumerate(last):
            held[rank].add(part)
        count, sent = count + 1, sent + 1 / ranks
    return count, sent


def tree(ranks: int) -> int:
    """Rounds of a broadcast in which everybody who has the message passes it on."""
    count, have = 0, 1
    while have < ranks:
        have, count = 2 * have, count + 1
    return count


@pytest.mark.parametrize("ranks", [2, 4, 8, 32])
def test_rounds_and_volume_are_those_of_the_algorithms(ranks: int) -> None:
    in_ring, parts = ring(ranks)
    for kind, both in (("all_gather", 1), ("reduce_scatter", 1), ("all_reduce", 2)):
        assert rounds(kind, ranks) == (both * tree(ranks), both * in_ring)
        assert volume(kind, ranks) == pytest.approx(both * parts)
    assert rounds("broadcast", ranks)[0] == tree(ranks)
    assert volume("broadcast", ranks) == 1


def test_what_is_not_told_apart_spans_both_ends() -> None:
    took = np.array([100.0])
    known = CollectiveCost("all_gather", 4, 100.0, CollectiveRate((40.0, 40.0), 0.06, 9))
    low, high = known.longer_us(np.array([1000.0]), took, 16)
    # By hand: of 60 µs for bytes 15/16 over 3/4; 40 µs of latency for 4 rounds over 2, up to 15 over 3.
    assert low[0] == pytest.approx(60 * (1.25 - 1) + 40)
    assert high[0] == pytest.approx(60 * (1.25 - 1) + 40 * 4)
    single = CollectiveCost("all_gather", 4, 100.0, CollectiveRate((0.0, 90.0), None, 9))
    low, high = single.longer_us(np.array([1000.0]), took, 16)
    assert (low[0], high[0]) == pytest.approx((25.0, 400.0))


def test_no_collective_takes_less_than_nothing() -> None:
    cost = CollectiveCost("all_reduce", 64, 10.0, CollectiveRate((500.0, 900.0), 0.01, 9))
    for ranks in (1, 2, 8):
        low, high = cost.longer_us(np.array([4.0]), np.array([10.0]), ranks)
        assert low[0] >= -10
        assert high[0] >= low[0]
    assert cost.longer_us(np.array([4.0]), np.array([10.0]), 1)[1][0] == -10
