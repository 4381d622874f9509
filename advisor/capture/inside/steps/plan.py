"""How many steps each phase of a capture takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

# Un-profiled steps from which on they give a median; steps of a window where nothing asks for more.
FEW = 5
# Without a known length of the epoch the script may be short: 20 un-profiled steps before the window, 100 otherwise.
_UNKNOWN_TIMING, _FULL_TIMING = 20, 100
_UNKNOWN_WARMUP, _FULL_WARMUP = 3, 10
# Steps of less than 20 ms are short. A window of them lasts 0.2 s, so that a stall or a slow tail is not all of it: ten
# of 20 ms, at most fifty of 4 ms or less. In 0.2 s a host starts as many ops as it does in those ten, however short the
# step, so the trace stays as large. A loop of unknown length may be short: twenty there.
_SHORT_NS, _WINDOW_OF_SHORT_NS = 20_000_000, 200_000_000
_SHORT_STEPS, _UNKNOWN_STEPS, _MOST_STEPS = 10, 20, 50
# Steps that an epoch needs beside warm-up, timing and window: the profiler's own warm-up, two with their lines where
# there are two kinds of steps, two that are observed.
_RESERVE = 5


@dataclass
class Plan:
    """How many steps each phase takes. steps 0: chosen by the length of a step."""

    warmup: int
    timing: int
    steps: int
    lines: bool
    ranks: int = 1
    most: int = FEW


def plan(options: dict[str, Any], known: int | None, ranks: int) -> Plan:
    """The plan for a loop whose epoch has `known` batches (None: unknown). Short epochs get short phases."""
    steps = int(options.get("steps") or 0)
    chosen = options.get("warmup")
    warmup = _UNKNOWN_WARMUP if chosen is None else int(chosen)
    timing, most = _UNKNOWN_TIMING, _UNKNOWN_STEPS
    if known is not None:
        most = steps or max(FEW, min(_MOST_STEPS, known // 4))
        spare = known - most - _RESERVE
        if chosen is None:
            warmup = max(1, min(_FULL_WARMUP, spare // 4))
        timing = max(1, min(_FULL_TIMING, spare - warmup))
    if options.get("hosted"):
        # A block of code may leave its loop long before the epoch ends, and somebody waits for it.
        warmup, timing = (warmup if chosen is not None else min(warmup, _UNKNOWN_WARMUP)), min(timing, _UNKNOWN_TIMING)
    if options.get("at_epoch"):
        timing = min(timing, _UNKNOWN_TIMING)  # the window is to lie in that epoch even where some steps do not count
    if at := int(options.get("at_step") or 0):
        # The last step before the window is the profiler's own warm-up.
        timing = max(1, min(timing, at - 2))
        warmup = max(1, at - timing - 1)
    return Plan(warmup, timing, steps, bool(options.get("lines", True)), ranks, most)


def window_steps(plan_: Plan, step_ns: float) -> int:
    """Steps to record: short steps need more of them for a steady figure, long ones make large traces.

    Ranks of one job must choose the same number, so there only the plan decides.
    """
    if plan_.steps:
        return plan_.steps
    if plan_.ranks > 1 or not step_ns:
        return FEW
    if step_ns < _SHORT_NS:
        return min(plan_.most, max(_SHORT_STEPS, math.ceil(_WINDOW_OF_SHORT_NS / step_ns)))
    return FEW if step_ns < 2e9 else 3
