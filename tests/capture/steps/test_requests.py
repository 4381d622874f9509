"""When another window is due: by number of steps, on request, and where steps became slower."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from advisor.capture.inside.steps.requests import ASKED, ELSEWHERE, EVERY, SLOWER, Requests  # noqa: E402
from advisor.capture.inside.steps.step_trend import StepTrend  # noqa: E402

SECOND = 10**9


def requests(folder: Path, every: int = 0, alone: bool = True) -> Requests:
    made = Requests({"folder": str(folder), "every": every}, StepTrend(lambda: None, lambda: None), lambda: False)
    made.begin(40, alone)
    return made


def train(made: Requests, steps: int, length_ns: int, number: int = 0) -> list[tuple[int, str]]:
    """Which steps of so many a window is due at."""
    found = []
    for step in range(number + 1, number + steps + 1):
        made.trend.step(length_ns, step)
        if why := made.due(step, step * SECOND):
            made.taken(why, step)
            found.append((step, why))
    return found


def test_every_so_many_steps_on_all_ranks_alike(tmp_path: Path) -> None:
    for alone in (True, False):
        made = requests(tmp_path, every=30, alone=alone)
        assert [step for step in range(40, 130) if _due(made, step) == EVERY] == [60, 90, 120]
        made.release()


def _due(made: Requests, step: int) -> str:
    why = made.due(step, step * SECOND)
    if why:
        made.taken(why, step)
    return why


def test_a_file_asks_once_and_only_a_job_of_one_rank(tmp_path: Path) -> None:
    made, several = requests(tmp_path), requests(tmp_path, alone=False)
    request = tmp_path / f"ask-{os.getpid()}"
    assert _due(made, 50) == ""
    request.touch()
    assert several.due(51, 51 * SECOND) == ""
    assert [_due(made, step) for step in (51, 52)] == [ASKED, ""]
    assert not request.exists()
    made.release()


def test_the_signal_asks_and_is_given_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    made = requests(tmp_path)
    if before is signal.SIG_DFL:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert [_due(made, step) for step in (50, 51)] == [ASKED, ""]
    made.release()
    assert signal.getsignal(signal.SIGUSR1) is before


def test_slower_steps_ask_by_themselves_three_times_at_most(tmp_path: Path) -> None:
    made = requests(tmp_path)
    number, found = 0, []
    for length in (1.0, 1.2, 1.5, 1.55, 2.2, 3.0, 4.0):
        found += [(length, why) for _, why in train(made, 200, int(length * SECOND), number)]
        number += 200
    assert found == [(1.5, SLOWER), (2.2, SLOWER), (3.0, SLOWER)]
    made.release()


def test_steps_of_a_busy_or_short_run_ask_for_nothing(tmp_path: Path) -> None:
    made = requests(tmp_path)
    assert train(made, 100, 10**6) + train(made, 100, 2 * 10**6, 100) == [], "less than a second tells nothing"
    made.release()
    waited = iter(range(0, 10**15, SECOND))
    busy = Requests({"folder": str(tmp_path)}, StepTrend(lambda: next(waited), lambda: None), lambda: False)
    busy.begin(0, alone=True)
    assert train(busy, 40, SECOND) == []
    busy.release()


def test_another_loop_asks_by_itself_twice_at_most(tmp_path: Path) -> None:
    moves = iter([step in (15, 31, 47) for step in range(1, 80)])
    trend = StepTrend(lambda: None, lambda: None)
    made = Requests({"folder": str(tmp_path)}, trend, lambda: next(moves))
    made.begin(0, alone=True)
    found = []
    for step in range(1, 80):
        trend.step(10**7, step)
        if why := made.due(step, step * SECOND):
            made.taken(why, step)
            found.append((step, why))
    assert found == [(15, ELSEWHERE), (31, ELSEWHERE)]
    made.release()


def test_steps_of_a_slower_loop_are_no_slower_steps(tmp_path: Path) -> None:
    moves = iter([step == 401 for step in range(1, 2000)])
    made = Requests({"folder": str(tmp_path)}, StepTrend(lambda: None, lambda: None), lambda: next(moves))
    made.begin(0, alone=True)
    found = train(made, 400, SECOND) + train(made, 800, 8 * SECOND, 400)
    assert found == [(401, ELSEWHERE)]
    assert train(made, 400, 12 * SECOND, 1200)[0][1] == SLOWER, "than others of its loop"
    made.release()
