"""A thread that samples stacks sees Python that takes less than the interpreter's switch interval."""

from __future__ import annotations

import os
import sys
import threading
import time

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def seen_in_python(still: bool) -> tuple[int, int]:
    """How many of some 100 samples saw a loop of 2 ms between sleeps of 4 ms; how many there were."""
    from advisor.capture.inside.steps.lock_turn import LockTurn

    ended, lines = threading.Event(), []
    main = threading.get_ident()

    def look() -> None:
        turn = LockTurn()
        while not ended.is_set():
            frames = sys._current_frames()
            if still:
                turn.seen(frames, main)
            lines.append(frames[main].f_lineno)
            turn.sleep(0.005)

    thread = threading.Thread(target=look)
    thread.start()
    first = sys._getframe().f_lineno
    while len(lines) < 100:
        began = time.perf_counter()
        while time.perf_counter() - began < 0.002:
            sum(range(10))
        time.sleep(0.004)
    ended.set()
    thread.join()
    return sum(first + 1 < line < first + 5 for line in lines), len(lines)


def test_python_between_two_ops_is_seen() -> None:
    often, of = seen_in_python(still=True)
    rarely, _ = seen_in_python(still=False)
    assert often > 0.1 * of  # a third of the time
    assert rarely < often


def test_the_time_is_given_back_and_never_changed_where_another_thread_moves() -> None:
    from advisor.capture.inside.steps.lock_turn import LockTurn

    usual = sys.getswitchinterval()
    turn = LockTurn()
    here = sys._getframe()
    within: list[float] = []
    for frames in ({1: here}, {1: here, 2: here}, {1: here, 2: here}):
        turn.seen(frames, watched=1)
        timer = threading.Timer(0.02, lambda: within.append(sys.getswitchinterval()))
        timer.start()
        turn.sleep(0.1)
        timer.join()
        assert sys.getswitchinterval() == usual
    assert within[:2] == [usual, usual]  # unknown, then a thread that was not there before
    assert within[2] == pytest.approx(0.00001)


def test_what_the_script_sets_meanwhile_stays() -> None:
    from advisor.capture.inside.steps.lock_turn import LockTurn

    usual = sys.getswitchinterval()
    turn = LockTurn()
    turn.seen({}, watched=1)
    turn.seen({}, watched=1)
    timer = threading.Timer(0.02, lambda: sys.setswitchinterval(0.007))
    timer.start()
    try:
        turn.sleep(0.1)
        timer.join()
        assert sys.getswitchinterval() == pytest.approx(0.007)
    finally:
        sys.setswitchinterval(usual)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_has_the_scripts_own_time() -> None:
    from advisor.capture.inside.steps.lock_turn import LockTurn

    usual = sys.getswitchinterval()
    turn = LockTurn()
    turn.seen({}, watched=1)
    turn.seen({}, watched=1)
    asleep = threading.Thread(target=turn.sleep, args=(0.3,))
    asleep.start()
    time.sleep(0.05)
    assert sys.getswitchinterval() < usual
    child = os.fork()
    if child == 0:
        os._exit(0 if sys.getswitchinterval() == usual else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    asleep.join()


def test_while_c_code_keeps_the_lock_waits_become_ordinary_ones() -> None:
    """`sum` of a list gives the lock away only when it returns."""
    from advisor.capture.inside.steps.lock_turn import LockTurn

    turn, numbers = LockTurn(), [0.5] * 20_000_000
    turn.seen({}, watched=1)
    turn.seen({}, watched=1)
    asleep = threading.Thread(target=turn.sleep, args=(0.02,))
    asleep.start()
    while asleep.is_alive():
        sum(numbers)
    within: list[float] = []
    timer = threading.Timer(0.02, lambda: within.append(sys.getswitchinterval()))
    timer.start()
    turn.sleep(0.1)
    timer.join()
    assert within == [sys.getswitchinterval()]
