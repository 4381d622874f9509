"""The rules of one large trace, with the analyses they need, shared out among two threads.

Most of an analysis' time is spent inside numpy, which lets the other thread run meanwhile. Without it real traces of
1 GB take 3.7 to 3.9 s of wall time instead of 3.1 to 3.3, for 5 to 10 % less CPU time (two cores that others use, too).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from advisor.analyses.base.gpu_busy import GpuBusy
from advisor.analyses.costs.replay import Replay
from advisor.analyses.lines.lines import Lines
from advisor.analyses.step.gpu_idle import GpuIdle
from advisor.analyses.step.host_activity import HostActivity
from advisor.analyses.step.launches import Launches
from advisor.analyses.step.phases import Phases
from advisor.analyses.step.step_counts import StepCounts
from advisor.analyses.work.matmuls import Matmuls
from advisor.computed import Computed
from advisor.engine.rule import Rule
from advisor.model import Outcome
from advisor.trace.read.allocator import cores

# From here on a second thread saves more wall time than it costs CPU time: at 2,200,000 events 0.4 to 0.7 s for 0.3 to
# 0.5 CPU s, but at 500,000 0.05 to 0.12 s for 0.2 to 0.3, and a tenth of the memory.
LARGE_EVENTS = 1_000_000
# What each of the two works out before it asks rules. The first is the longest chain; the second begins with what does
# not need that chain's own first part. Only the time that all of it takes depends on this.
_FIRST: Sequence[type] = (Replay,)
_SECOND: Sequence[type] = (Lines, Phases, HostActivity, GpuBusy, Launches, GpuIdle, StepCounts, Matmuls)


def is_worth_it(events: int) -> bool:
    """Whether a second thread saves time on a trace of so many events."""
    return events >= LARGE_EVENTS and cores() > 1


def of_two_threads(rules: Sequence[Rule], computed: Computed, ask: Callable[[Rule], Outcome]) -> tuple[Outcome, ...]:
    """What each rule says, in the order of the rules: what `ask` gives for each."""
    waiting = deque(enumerate(rules))
    said: dict[int, Outcome] = {}

    def work(kinds: Sequence[type]) -> None:
        for kind in kinds:
            with suppress(Exception):  # it is kept, and told to who asks
                computed.get(kind)
        while turn := _next(waiting):
            index, rule = turn
            said[index] = ask(rule)

    # A daemon: Ctrl-C ends the command at once, whatever the other thread is at.
    other = threading.Thread(target=work, args=(_SECOND,), daemon=True)
    other.start()
    work(_FIRST)
    other.join()
    # What has ended the other thread early is met again here.
    return tuple(said[index] if index in said else ask(rule) for index, rule in enumerate(rules))


def _next(waiting: deque[tuple[int, Rule]]) -> tuple[int, Rule] | None:
    try:
        return waiting.popleft()
    except IndexError:
        return None
