"""Signal handlers of the script wait while we are at work, and what they raise is never taken for a failure of ours."""

from __future__ import annotations

import functools
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

pytest.importorskip("torch")
from advisor.capture.inside.guards.interrupts import Interrupts, let_through
from advisor.capture.inside.listeners import Listeners

pytestmark = pytest.mark.torch


class TooLateError(TimeoutError):
    """What a script's alarm raises; an OSError, as many of them are."""


def late(number: int, _frame: FrameType | None) -> None:
    raise TooLateError(number)


class Lazy:
    """A handler that is a method, takes what comes, and is no longer registered once it runs."""

    def __call__(self, *_: Any) -> None:
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        raise TooLateError


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The handlers of this process, as they were; an interrupt's is Python's own meanwhile."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_a_signal_waits_for_the_end_of_our_work() -> None:
    """Held once however often it comes; afterwards the handler stands where it stood, and runs."""
    came: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _frame: came.append(number))
    signal.signal(signal.SIGUSR2, late)
    before = signal.getsignal(signal.SIGINT)
    interrupts = Interrupts()
    interrupts.hold(False)
    signal.raise_signal(signal.SIGUSR1)
    assert came == [signal.SIGUSR1]
    interrupts.hold(True)
    assert signal.getsignal(signal.SIGINT) is before
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR1):
        signal.raise_signal(number)
    assert came == [signal.SIGUSR1]
    with pytest.raises(TooLateError):
        interrupts.release()
    assert came == [signal.SIGUSR1] * 2
    assert signal.getsignal(signal.SIGUSR2) is late
    interrupts.release()
    assert came == [signal.SIGUSR1] * 2


@pytest.mark.parametrize("handler", [late, Lazy(), functools.partial(late)])
def test_what_a_handler_raises_goes_on(handler: Any) -> None:
    """However the handler is made: told by the frame that it interrupted."""
    signal.signal(signal.SIGUSR2, handler)
    ears = Listeners({})
    with pytest.raises(TooLateError):
        ears._guard(signal.raise_signal, signal.SIGUSR2)


def test_a_failure_of_ours_does_not() -> None:
    """An error in a call of ours ends capture alone, even where the frame of a caller was looked at."""
    failures: list[Exception] = []
    ears = Listeners({})
    ears.fail = failures.append  # type: ignore[method-assign, assignment]
    ears._guard(int, "no number")
    (failure,) = failures
    let_through(failure)
    assert isinstance(failure, ValueError)
