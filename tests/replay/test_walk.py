"""Nodes one by one: the extension and Python give the same, to the bit, and both what the recurrence says."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.replay.walk import Columns, in_python

_walk = pytest.importorskip("advisor.replay._walk", reason="the extension was not built")
QUEUES = 3


def drawn(seed: int, count: int = 200) -> tuple[np.ndarray, Columns]:
    """A state of three queues, and nodes that wait for any that stand before them, some for several."""
    random = np.random.default_rng(seed)
    slots = QUEUES + np.arange(count)
    more = np.sort(random.integers(0, count, count // 3))
    done = np.concatenate((random.normal(0, 1e6, QUEUES), np.full(count, np.nan)))
    done[0] = -np.inf
    times = [random.normal(0, 1e5, size) for size in (count, count, count, len(more))]
    before, other = random.integers(0, slots), random.integers(0, slots)
    return done, (before, times[0], other, times[1], times[2], more, random.integers(0, slots[more]), times[3])


@pytest.mark.parametrize("seed", range(20))
def test_both_give_what_the_recurrence_says(seed: int) -> None:
    done, columns = drawn(seed)
    before, after, other, lag, own, more, slot, delay = columns
    expected = done.copy()
    for node in range(len(before)):
        held = [expected[before[node]] + after[node], expected[other[node]] + lag[node]]
        held += [expected[slot[edge]] + delay[edge] for edge in np.flatnonzero(more == node)]
        expected[QUEUES + node] = max(held) + own[node]
    assert not np.isnan(expected).any()
    for play in (in_python, _walk.walk):
        played = done.copy()
        play(played, QUEUES, columns)
        assert np.array_equal(played, expected)


@pytest.mark.parametrize("column", [0, 2, 6])
@pytest.mark.parametrize("slot", [-1, QUEUES + 7, QUEUES + 1000])
def test_the_extension_reads_nothing_that_is_not_there_yet(column: int, slot: int) -> None:
    done, columns = drawn(1)
    columns[5][0] = 7  # the first further edge is one of node 7, as the entries of the other columns are
    columns[column][0 if column == 6 else 7] = slot
    with pytest.raises(IndexError, match="stands behind it"):
        _walk.walk(done, QUEUES, columns)


def test_the_extension_writes_nothing_beyond_the_end() -> None:
    done, columns = drawn(2)
    with pytest.raises(IndexError):
        _walk.walk(done[:-1].copy(), QUEUES, columns)
