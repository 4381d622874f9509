"""Where the step goes without the profiler, worked out by hand."""

import pytest

from advisor.analyses.costs.plain_breakdown import PlainBreakdown
from advisor.analyses.step.breakdown import Breakdown
from advisor.api import BACKWARD, FORWARD, Ev, draw
from advisor.engine.rule import Example
from advisor.testing import computed

# Each step is 2,400 µs: 600 forward, 900 Python, 900 backward.
STEPS = """
    step   [1                     ][2                     ]
    cpu    [F   ][P      ][B      ][F   ][P      ][B      ]
    """


def shares(facts):
    events = {"F": FORWARD, "P": Ev("train.py(31): accuracy"), "B": BACKWARD}
    known = computed(Example("drawn", draw(STEPS, us=100, **events), None, facts=facts))
    raw = {item.id: item.share for item in known.get(Breakdown).items}
    plain = known.get(PlainBreakdown).items
    step_us = sum(item.us for item in known.get(Breakdown).items)
    assert sum(item.share for item in plain) == pytest.approx(1)
    assert [item.us for item in plain] == pytest.approx([item.share * step_us for item in plain])
    return raw, {item.id: item.share for item in plain}


def timed(backward_us, rest_us):
    """Steps whose backward pass and whose rest were timed without the profiler, and with it as drawn."""
    plain, seen = (
        {"fetch": 0.0, "optimizer": 0.0, "backward": b, "rest": r} for b, r in ((backward_us, rest_us), (900, 1500))
    )
    steps = {
        "unprofiled_us": [backward_us + rest_us] * 20,
        "profiled_us": [2400.0] * 2,
        "unprofiled_parts_us": {name: [us] * 20 for name, us in plain.items()},
        "profiled_parts_us": {name: [us] * 2 for name, us in seen.items()},
    }
    return {"steps": steps}


def test_the_part_that_the_profiler_slowed_takes_less_of_the_step_without_it():
    raw, plain = shares(timed(300.0, 1500.0))
    assert raw["backward"] == pytest.approx(900 / 2400, abs=0.01)
    assert plain["backward"] == pytest.approx(300 / 1800, abs=0.02)
    assert plain["host"] == pytest.approx(900 / 1800, abs=0.02)


def test_without_steps_timed_apart_parts_are_as_recorded():
    raw, plain = shares(None)
    assert plain == raw
