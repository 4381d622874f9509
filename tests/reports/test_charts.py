"""The bar, the timeline, the strip and the tables of the page: full, in proportion, and nothing left out in silence."""

from __future__ import annotations

import re

import pytest
import reports_fixtures as fixtures
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from reports_fixtures import module

from advisor.model import (
    BreakdownItem,
    Lane,
    Segment,
    Timeline,
)

words = module("_words")
charts = module("as_html._charts")


def percent(text: str) -> float:
    return float(text.removesuffix("%")) / 100


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_the_bar_is_full_and_in_proportion(shares: list[float]) -> None:
    items = [BreakdownItem(f"part{i}", share * 100, share) for i, share in enumerate(shares)]
    pieces = charts.bar(items)
    assert len(pieces) == sum(share > 0 for share in shares)
    x = 0.0
    for piece, share in zip(pieces, [share for share in shares if share > 0], strict=True):
        assert percent(piece.x) == pytest.approx(x, abs=1e-4)
        assert percent(piece.width) == pytest.approx(share / sum(shares), abs=1e-4)
        x += share / sum(shares)


@given(st.lists(st.tuples(st.floats(-10, 120), st.floats(0, 150)), max_size=30))
def test_the_timeline_stays_inside_the_step(pieces: list[tuple[float, float]]) -> None:
    segments = tuple(Segment(start, dur, "kernel", "k") for start, dur in pieces)
    drawn = charts.timeline(Timeline("s", 100, (Lane("l", segments),)))
    for box, (start, dur) in zip(drawn.lanes[0].boxes, pieces, strict=True):
        left = min(max(start, 0), 100)
        assert percent(box.x) == pytest.approx(left / 100, abs=1e-4)
        assert percent(box.x) + percent(box.width) <= 1.0001
        assert percent(box.width) == pytest.approx(min(dur, 100 - left) / 100, abs=1e-4)


@given(st.floats(1e-2, 1e9))
def test_the_axis_has_a_few_round_marks(dur_us: float) -> None:
    drawn = charts.timeline(Timeline("s", dur_us, (Lane("l", (Segment(0, 1, "op", "x"),)),)))
    assert 5 <= len(drawn.ticks) <= 13
    assert drawn.ticks[0][0] == "0%"
    assert sum(bool(text) for _, text in drawn.ticks) >= 4
    for x, text in drawn.ticks:
        assert bool(text) == (percent(x) <= 0.88), "a text near the end would be cut off"


def test_what_the_table_leaves_out_is_counted_with_its_time() -> None:
    segments = tuple(Segment(i * 10.0, float(1 + i % 7), "op", f"op{i}") for i in range(100))
    lane = charts.timeline(Timeline("s", 1000, (Lane("l", segments),))).lanes[0]
    hidden = sorted((segment.dur_us for segment in segments), reverse=True)[len(lane.rows) :]
    assert lane.left_out == f"{len(hidden)} shorter segments, {words.time(sum(hidden))} in all"


def test_a_foreign_kind_never_becomes_a_class() -> None:
    assert charts.kind_class('x" onload="y') == "other"


@given(st.lists(st.floats(0, 1e7), min_size=2, max_size=60))
def test_the_strip_tells_what_it_cuts(series: list[float]) -> None:
    report = fixtures.canonical()
    strip = charts.strip(replace(report, steps=replace(report.steps, series_us=tuple(series))))
    heights = [100 - float(value) for value in re.findall(r"V([\d.]+)h", strip.path)]
    assert len(heights) == len(series)
    assert all(0 <= height <= 100 for height in heights)
    cut = len(re.findall("M", strip.over))
    assert strip.clipped.startswith(f"{cut} step") if cut else strip.clipped == ""
    # Bars that are not cut have the proportions of the steps.
    whole = [(value, height) for value, height in zip(series, heights, strict=True) if height < 100]
    tallest, height = max(whole, key=lambda pair: pair[1], default=(0.0, 0.0))
    if height > 1:
        assert [one for _, one in whole] == pytest.approx([value / tallest * height for value, _ in whole], abs=0.05)
