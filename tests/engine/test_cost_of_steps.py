"""What long windows cost, counted and not timed: calls of Python functions, the same on a machine with other work."""

from __future__ import annotations

import random
import sys
from types import FrameType
from typing import Any

import pytest
from benchmarks.reading import made_traces

from advisor.computed import Computed
from advisor.engine.ask_rules import apply, of_job
from advisor.engine.registry import load_rules
from advisor.trace.events import Trace
from advisor.trace.read.load import read_bytes

# From twenty steps on, replays and backward passes look at twenty of them.
SHORT, LONG = 40, 160
LAYERS = 8


def drawn(steps: int) -> Trace:
    """A loop of so many steps of a few layers, alike but for their times."""
    rng = random.Random(7)
    layers = [
        (rng.choice(made_traces.OPS), made_traces.kernel_name(rng), "[[32, 1024], [1024, 1024], []]")
        for _ in range(LAYERS)
    ]
    clock = made_traces.Clock()
    rows = "".join(row for number in range(steps) for row in made_traces.step_rows(clock, rng, layers, number))
    return read_bytes(f"{made_traces.HEAD}{rows.rstrip().rstrip(',')}\n]}}".encode(), "made.pt.trace.json")


def calls(steps: int) -> dict[str, int]:
    """Rule -> calls of Python functions until it has answered, with the analyses that it is the first to ask for."""
    known, counted = Computed(trace=drawn(steps)), {}
    for rule in load_rules().rules:
        if not of_job(rule):
            with Counting() as counting:
                assert apply(rule, known, {}).status != "error"
            counted[rule.id] = counting.calls
    return counted


class Counting:
    """Calls of Python functions in a block."""

    def __init__(self) -> None:
        self.calls = 0

    def __enter__(self) -> Counting:
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _called(self, _frame: FrameType, event: str, _argument: Any) -> None:
        self.calls += event == "call"


def test_rules_and_analyses_do_not_walk_steps_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times the steps take 31 % more calls: 19 a step for its name, 12 for its collective, none for its 32 ops.

    What rules share counts for the first that asks: 31 for one that asks for both.
    """
    monkeypatch.setattr(made_traces, "FRAMES", made_traces.FRAMES[:10])  # more steps have no more names
    calls(SHORT)  # what is computed once in a process
    short, long = calls(SHORT), calls(LONG)
    assert sum(short.values()) > 10_000, "the rules were not counted"
    growing = {rule: (long[rule] - short[rule]) / (LONG - SHORT) for rule in short}
    assert not {rule: by for rule, by in growing.items() if by > 35}, "calls per further step"
    assert sum(long.values()) < 1.5 * sum(short.values())


def test_a_rule_that_walks_steps_is_noticed() -> None:
    def turn() -> None: ...

    with Counting() as counting:
        for _ in range(30 * (LONG - SHORT)):
            turn()
    assert counting.calls > 25 * (LONG - SHORT)
