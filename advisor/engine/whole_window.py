"""What rules say of a step, said of the recorded window where no steps were found in it.

Rules count and divide per step; without steps the window is the one step, and their sentences have to say so. What a
whole step holds is then not known: a change that shortens what was recorded may be little of a step, or nothing.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from advisor.model import Joint, Outcome, Report, Saving
from advisor.model.steps import StepSource

_BOUND = "low: nothing, since no step was recorded whole, and what the rest of one takes is not known; of the window: "

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


def without_low_end(saving: Saving) -> Saving:
    """The saving as an upper bound, where no step was recorded whole."""
    return replace(saving, low_us=0.0, how=_BOUND + saving.how) if saving.low_us else saving


def of_outcome(outcome: Outcome, source: StepSource) -> Outcome:
    """The outcome with savings that are upper bounds where no step was recorded whole. source: of the steps."""
    if source != "window":
        return outcome
    found = (replace(one, saving=one.saving and without_low_end(one.saving)) for one in outcome.findings)
    return replace(outcome, findings=tuple(found))


def of_joint(joint: Joint | None, source: StepSource) -> Joint | None:
    """The same of what all fixes save together."""
    if joint is None or source != "window":
        return joint
    return replace(joint, low_us=0.0, step_us_after=joint.step_us_after + joint.low_us / 2)


def _outcome(outcome: Outcome) -> Outcome:
    said = (replace(finding, message=of_window(finding.message)) for finding in outcome.findings)
    return replace(outcome, findings=tuple(said))
