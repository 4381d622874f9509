"""What is said where no steps were found: of the window, never of each step."""

from __future__ import annotations

import json
import re

import pytest
from drawn_loops import report

from advisor.api import Ev, draw
from advisor.engine.whole_window import of_joint, of_outcome, of_window
from advisor.model import Finding, Joint, Outcome, Saving
from advisor.model.steps import StepSource

_OF_STEPS = re.compile(r"\b(each|a|per) step\b", re.IGNORECASE)


@pytest.mark.parametrize(
    ("said", "instead"),
    [
        (
            "takes 1.2 ms of each step (5 %), 3 times a step.",
            "takes 1.2 ms of the window (5 %), 3 times in the window.",
        ),
        ("a step has 220 launches", "the window has 220 launches"),
        ("Each step runs 314 kernels only to convert", "The window runs 314 kernels only to convert"),
        ("A step of 14 ms trains on 16 samples", "The window of 14 ms trains on 16 samples"),
        ("19 MB a step are copied", "19 MB in the window are copied"),
        ("in one of the 5 recorded steps", "in one of the 5 recorded steps"),
    ],
)
def test_sentences(said: str, instead: str) -> None:
    assert of_window(said) == instead


@pytest.mark.parametrize("marked", [True, False])
def test_a_report_without_steps_speaks_of_the_window(marked: bool) -> None:
    lanes = """
        cpu    [F  ]  [F  ]  [F  ]  [F  ]  [F  ]  [F  ]  [F  ]  [F  ]
        gpu 7   [K]    [K]    [K]    [K]    [K]    [K]    [K]    [K]
        """
    steps = """
        step   [1                          ][2                         ]"""
    trace = draw((steps if marked else "") + lanes, us=2, device="A100", F=Ev("aten::relu"))
    texts = [finding.message for _, finding in report(json.dumps(dict(trace)).encode()).findings()]
    assert texts
    assert any(map(_OF_STEPS.search, texts)) is marked


@pytest.mark.parametrize(("source", "low"), [("window", 0.0), ("loader", 30.0), ("repetition", 30.0)])
def test_nothing_is_certain_where_no_step_was_recorded_whole(source: StepSource, low: float) -> None:
    saving = Saving(30.0, 90.0, "modelled", "high: all of it")
    found = of_outcome(Outcome("unused-outputs", "found", (Finding("said", saving, (), {}, None),)), source)
    [finding] = found.findings
    assert finding.saving is not None
    assert (finding.saving.low_us, finding.saving.high_us) == (low, 90.0)
    assert ("no step was recorded whole" in finding.saving.how) is (source == "window")
    joint = of_joint(Joint(30.0, 90.0, 100.0), source)
    assert joint is not None
    assert (joint.low_us, joint.step_us_after) == ((0.0, 115.0) if source == "window" else (30.0, 100.0))


def test_what_was_an_upper_bound_already_keeps_its_words() -> None:
    saving = Saving(0.0, 90.0, "modelled", "low: nothing, if it is hidden")
    [finding] = of_outcome(Outcome("x", "found", (Finding("said", saving, (), {}, None),)), "window").findings
    assert finding.saving == saving
    [told] = of_outcome(Outcome("x", "found", (Finding("said", None, (), {}, None),)), "window").findings
    assert told.saving is None
