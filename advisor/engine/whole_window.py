"""What rules say of a step, said of the recorded window where no steps were found in it.

Rules count and divide per step; without steps the window is the one step, and their sentences have to say so.
"""

from __future__ import annotations

import re
from dataclasses import replace

from advisor.model import Outcome, Report

_SAID = tuple(
    (re.compile(said), instead)
    for said, instead in (
        (r"\b(A|Each) step\b", "The window"),
        (r"\ba step (?=has\b|holds\b|takes\b|runs\b|trains\b)", "the window "),
        (r"\beach step\b", "the window"),
        (r"\b(a|per) step\b", "in the window"),
    )
)


def of_window(text: str) -> str:
    """'1.2 ms of each step, 3 times a step' as '1.2 ms of the window, 3 times in the window'."""
    for said, instead in _SAID:
        text = said.sub(instead, text)
    return text


def in_words(report: Report) -> Report:
    """The report with what its findings and its notes say, where the window is the step."""
    if report.steps.source != "window":
        return report
    return replace(
        report,
        outcomes=tuple(_outcome(one) for one in report.outcomes),
        health=tuple(replace(said, message=of_window(said.message)) for said in report.health),
    )


def _outcome(outcome: Outcome) -> Outcome:
    said = (replace(finding, message=of_window(finding.message)) for finding in outcome.findings)
    return replace(outcome, findings=tuple(said))
