"""Arithmetic on interval sets against the same on sets of single nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from advisor.trace import intervals as iv

SPANS = st.lists(st.tuples(st.integers(-20, 60), st.integers(-20, 60)), max_size=12)
Spans = list[tuple[int, int]]


def _points(spans: Spans) -> set[int]:
    return {point for start, end in spans for point in range(start, end)}


def _set(spans: Spans) -> iv.Intervals:
    return iv.union([start for start, _ in spans], [end for _, end in spans])


def _is_set(a: iv.Intervals) -> bool:
    """Sorted, disjoint, none empty, none touching."""
    return a.shape[1] == 2 and bool((a[:, 1] > a[:, 0]).all()) and bool((a[1:, 0] > a[:-1, 1]).all())


@given(SPANS)
def test_union_and_total(spans: Spans) -> None:
    made = _set(spans)
    assert _is_set(made)
    assert _points(made.tolist()) == _points(spans)
    assert iv.total(made) == len(_points(spans))


@given(SPANS, SPANS)
def test_intersection(a: Spans, b: Spans) -> None:
    made = iv.intersect(_set(a), _set(b))
    assert _points(made.tolist()) == _points(a) & _points(b)
    assert iv.total(made) == len(_points(a) & _points(b))


@given(SPANS, SPANS)
def test_difference(a: Spans, b: Spans) -> None:
    made = iv.subtract(_set(a), _set(b))
    assert _points(made.tolist()) == _points(a) - _points(b)
    assert iv.total(made) == len(_points(a) - _points(b))


@given(SPANS, SPANS)
def test_overlap_of_each_span(spans: Spans, b: Spans) -> None:
    whole = [(min(span), max(span)) for span in spans]
    made = iv.overlap_of_each([s for s, _ in whole], [e for _, e in whole], _set(b))
    assert made.tolist() == [len(_points([span]) & _points(b)) for span in whole]


@given(SPANS)
def test_a_part_is_never_more_than_the_whole(spans: Spans) -> None:
    window = np.array([[0, 40]])
    share = iv.total(iv.intersect(_set(spans), window)) / iv.total(window)
    assert 0 <= share <= 1


def test_nothing() -> None:
    assert iv.total(iv.EMPTY) == 0
    assert len(iv.union([], [])) == 0
    assert len(iv.intersect(iv.EMPTY, iv.EMPTY)) == 0
    assert iv.subtract(np.array([[1, 2]]), iv.EMPTY).tolist() == [[1, 2]]


def test_nanoseconds_of_today_do_not_overflow() -> None:
    now = 1_790_000_000_000_000_000
    assert iv.total(iv.union([now, now + 5], [now + 10, now + 20])) == 20
    assert iv.subtract(np.array([[now, now + 10]]), np.array([[now + 4, now + 6]])).tolist() == [
        [now, now + 4],
        [now + 6, now + 10],
    ]
