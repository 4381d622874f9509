"""Progress of reading: nothing for what is quick, a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import io
from typing import Any

import pytest

from advisor import progress


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    now = {"s": 100.0}
    monkeypatch.setattr(progress.time, "monotonic", lambda: now["s"])
    return now


def _read(stream: io.StringIO, clock: dict[str, float], seconds: float, **options: Any) -> str:
    with progress.reading("t[0].json", stream, **options) as report:
        for part in range(11):
            if report is not None:
                report(part * 10**8, 10**9)
            clock["s"] += seconds / 10
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
