"""Frames of threads are read while nothing is collected."""

from __future__ import annotations

import gc
import re
import sys
import threading
from pathlib import Path

import pytest

import advisor
from advisor.capture.inside.guards import thread_frames


class _Cycle:
    """Garbage that only a collection frees."""

    freed = 0

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        _Cycle.freed += 1


@pytest.mark.parametrize("on", [True, False])
def test_nothing_is_collected_meanwhile_and_the_switch_is_left_as_it_was(
    monkeypatch: pytest.MonkeyPatch, on: bool
) -> None:
    was_on, threshold, seen = gc.isenabled(), gc.get_threshold(), list[int]()

    def frames() -> dict[int, object]:
        before = _Cycle.freed
        made = [_Cycle() for _ in range(64)]
        del made
        kept = [[] for _ in range(4096)]  # far more than what starts a collection
        seen.append(_Cycle.freed - before + len(kept) - 4096)
        return {}

    monkeypatch.setattr(sys, "_current_frames", frames)
    try:
        gc.set_threshold(16)
        (gc.enable if on else gc.disable)()
        assert thread_frames.thread_frames() == {}
        assert gc.isenabled() == on
    finally:
        gc.set_threshold(*threshold)
        (gc.enable if was_on else gc.disable)()
    assert seen == [0]


def test_the_frame_of_this_thread_is_among_them() -> None:
    assert thread_frames.thread_frames()[threading.get_ident()].f_code.co_name == "thread_frames"


def test_nobody_else_asks_the_interpreter() -> None:
    package = Path(advisor.__file__).parent
    asking = [path.name for path in package.rglob("*.py") if re.search(r"sys\._current_(frames|exc)", path.read_text())]
    assert asking == ["thread_frames.py"]
