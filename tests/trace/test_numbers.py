"""Ways to tell columns of integers apart and to order them, against numpy's own."""

import numpy as np
import pytest

from advisor.analyses.work.op_costs import alike
from advisor.trace.intervals import starts_in, union
from advisor.trace.numbers import distinct_pairs, first_places, numbered, order_by, small

RANGES = [(-1, 3), (0, 1 << 16), (-5, (1 << 16) - 5), (0, 1 << 17), (-(1 << 40), 1 << 40)]


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("low_high", RANGES)
def test_numbered_is_what_unique_says(kind, low_high):
    rng = np.random.default_rng(1)
    low, high = (max(min(end, 2**31 - 1), -(2**31)) if kind is np.int32 else end for end in low_high)
    for count in (0, 1, 400):
        values = np.append(rng.integers(low, high, count), [low, high - 1] if count > 1 else []).astype(kind)
        found, index = numbered(values)
        expected, inverse = np.unique(values, return_inverse=True)
        assert found.tolist() == expected.tolist()
        assert found.dtype == values.dtype
        assert index.tolist() == inverse.tolist()
        narrow = small(values)
        assert np.argsort(narrow, kind="stable").tolist() == np.argsort(values, kind="stable").tolist()


def test_first_places_are_those_of_unique():
    rng = np.random.default_rng(6)
    for count in (0, 1, 400):
        _, first, index = np.unique(rng.integers(0, 20, count), return_index=True, return_inverse=True)
        assert first_places(index, len(first)).tolist() == first.tolist()


def test_order_by_is_lexsort():
    rng = np.random.default_rng(2)
    for count in (0, 1, 2, 50, 300):
        first, second, third = (rng.integers(0, 40, count) for _ in range(3))
        assert order_by(first, second, third).tolist() == np.lexsort((third, second, first)).tolist()


def test_alike_numbers_rows_in_the_order_of_their_columns():
    rng = np.random.default_rng(3)
    columns = [rng.integers(-1, high, 500) for high in (3, 4, 1 << 20)]
    columns[2] = columns[2] % 3 * (1 << 18)
    _, expected = np.unique(np.column_stack(columns), axis=0, return_inverse=True)
    assert alike(columns).tolist() == expected.reshape(-1).tolist()


def test_distinct_pairs():
    rng = np.random.default_rng(4)
    first, second = rng.integers(-1, 5, 300), rng.integers(0, 1 << 30, 300) % 4 * (1 << 20)
    pairs, index = distinct_pairs(first, second)
    expected, inverse = np.unique(np.column_stack((first, second)), axis=0, return_inverse=True)
    assert pairs.tolist() == expected.tolist()
    assert index.tolist() == inverse.reshape(-1).tolist()


def test_starts_in_order_or_not():
    rng = np.random.default_rng(5)
    spans = union(start := rng.integers(0, 1000, 12), start + rng.integers(1, 60, 12))
    instants = rng.integers(-50, 1100, 400)
    expected = [any(low <= instant < high for low, high in spans.tolist()) for instant in instants.tolist()]
    assert starts_in(instants, spans).tolist() == expected
    order = np.argsort(instants)
    assert starts_in(instants[order], spans).tolist() == np.array(expected)[order].tolist()
