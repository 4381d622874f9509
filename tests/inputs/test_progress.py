"""Progress: nothing for what is quick; on a terminal a bar or a changing line, a line now and then elsewhere."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import pytest

from advisor.computed import Computed
from advisor.inputs import progress


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    now = {"s": 100.0}
    monkeypatch.setattr(progress.time, "monotonic", lambda: now["s"])
    return now


def _read(stream: io.StringIO, clock: dict[str, float], seconds: float, **options: Any) -> str:
    with progress.ranks_read([10**9], stream, name="t[0].json", **options) as shown:
        for part in range(11):
            shown.read(0, part * 10**8)
            clock["s"] += seconds / 10
        shown.ended(0, failed=False)
    return stream.getvalue()


def test_quick_reading_shows_nothing(clock: dict[str, float]) -> None:
    assert _read(io.StringIO(), clock, 0.5) == ""
    assert _read(_Terminal(), clock, 0.5) == ""


def test_lines_where_there_is_no_terminal(clock: dict[str, float]) -> None:
    lines = _read(io.StringIO(), clock, 25).splitlines()
    assert lines == ["reading t[0].json: 400 of 1000 MB, 40 MB/s", "reading t[0].json: 800 of 1000 MB, 40 MB/s"]


def test_a_bar_with_bytes_and_rate_on_a_terminal(clock: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    shown = _read(_Terminal(), clock, 25)
    assert "t[0].json" in shown
    assert "GB" in shown


def test_quiet_shows_nothing(clock: dict[str, float]) -> None:
    assert _read(_Terminal(), clock, 25, quiet=True) == ""


def _ranks(stream: io.StringIO, clock: dict[str, float], seconds: float) -> str:
    """Four ranks of 250 MB, two at once; the second one fails in the middle."""
    with progress.ranks_read([25 * 10**7] * 4, stream) as shown:
        for first in (0, 2):
            for rank in (first, first + 1):
                shown.read(rank, 10**8)
            clock["s"] += seconds / 2
            for rank in (first, first + 1):
                shown.ended(rank, failed=rank == 1)
    return stream.getvalue()


def test_many_ranks_have_one_line_or_bar(clock: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    assert _ranks(io.StringIO(), clock, 0.5) == ""
    assert _ranks(io.StringIO(), clock, 50).splitlines() == [
        "reading 1 of 4 ranks: 350 of 1000 MB, 14 MB/s",
        "reading 3 of 4 ranks, 1 failed: 850 of 1000 MB, 17 MB/s",
    ]
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    shown = _ranks(_Terminal(), clock, 50)
    assert "4 of 4 ranks, 1 failed" in shown
    assert "GB" in shown


def _analyse(stream: io.StringIO, clock: dict[str, float], seconds: float, **options: Any) -> str:
    with progress.analysing("t[0].json", stream, **options) as watch:
        for analysis in ("Steps", "GpuIdle", "Replay", "BatchSplit"):
            clock["s"] += seconds / 4
            if watch is not None:
                watch(analysis)
    return stream.getvalue()


def test_quick_analysing_shows_nothing(clock: dict[str, float]) -> None:
    assert _analyse(io.StringIO(), clock, 0.9) == ""
    assert _analyse(_Terminal(), clock, 0.9) == ""
    assert _analyse(_Terminal(), clock, 25, quiet=True) == ""


def test_analysing_says_what_is_worked_out(clock: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    assert _analyse(io.StringIO(), clock, 45).splitlines() == [
        "analyzing t[0].json: steps",
        "analyzing t[0].json: gpu idle",
        "analyzing t[0].json: replay",
        "analyzing t[0].json: batch split",
    ]
    shown = _analyse(_Terminal(), clock, 2.2)
    assert "analyzing t[0].json: " in shown
    assert "steps" not in shown
    assert shown.endswith("\x1b[2K")  # the line is taken away


def test_each_analysis_is_told_once_when_its_turn_comes() -> None:
    told: list[str] = []
    computed = Computed(told.append)
    for _ in range(2):
        assert computed.get(_Second).of.value == 1
    assert told == ["_First", "_Second"]


@dataclass(frozen=True)
class _First:
    value: int

    @classmethod
    def compute(cls) -> _First:
        return cls(1)


@dataclass(frozen=True)
class _Second:
    of: _First

    @classmethod
    def compute(cls, of: _First) -> _Second:
        return cls(of)
