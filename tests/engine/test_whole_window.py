"""What is said where no steps were found: of the window, never of each step."""

from __future__ import annotations

import json
import re

import pytest
from drawn_loops import report

from advisor.api import GEMM, Ev, draw
from advisor.engine.whole_window import of_window

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
    trace = draw((steps if marked else "") + lanes, us=2, device="A100", F=Ev("aten::relu"), K=GEMM)
    texts = [finding.message for _, finding in report(json.dumps(dict(trace)).encode()).findings()]
    assert texts
    assert any(map(_OF_STEPS.search, texts)) is marked
