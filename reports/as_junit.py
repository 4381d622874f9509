"""JUnit XML: one case per rule, for the test view of any CI.

found = failure, skipped and unconfirmed = skipped with the reason, a broken rule = error. Findings that the user
cannot remove are no failures.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from advisor.api import Outcome, Report

from . import _ranking, _verdict, _words

# XML 1.0 has no form at all for these characters, escaped or not.
_ILLEGAL = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TEXT_LIMIT = 4000


def render(report: Report) -> str:
    """The outcomes as a JUnit test suite."""
    outcomes = sorted(report.outcomes, key=lambda outcome: outcome.rule)
    suite = ElementTree.Element("testsuite", name="torch-advisor")
    for outcome in outcomes:
        case = ElementTree.SubElement(suite, "testcase", classname="torch-advisor.rules", name=_text(outcome.rule))
        _verdict_of(case, outcome, report)
    for kind, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(kind, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(outcomes)))
    said = _verdict.headline(report)
    ElementTree.SubElement(suite, "system-out").text = _text(f"{_verdict.step_words(report)}. {said.verdict}")
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _verdict_of(case: ElementTree.Element, outcome: Outcome, report: Report) -> None:
    """Adds what became of the rule; a clear one has nothing to add."""
    if outcome.status == "error":
        ElementTree.SubElement(case, "error", message=_text(outcome.reason), type="error")
    elif outcome.status == "skipped":
        ElementTree.SubElement(case, "skipped", message=_text(outcome.reason))
    elif outcome.status == "found":
        actions = [finding for finding in outcome.findings if finding.recoverable]
        lines = "\n".join(_lines(outcome, report))
        if not outcome.confirmed:
            note = "found, by a rule that is not confirmed yet: "
            ElementTree.SubElement(case, "skipped", message=_text(note + lines))
        elif actions:
            first = actions[0]
            worth = _ranking.saves(first, _verdict.headline(report))
            message = _text(f"{worth}: {_words.one_line(first.message)}")
            ElementTree.SubElement(case, "failure", message=message, type=first.severity).text = _text(lines)
        else:
            ElementTree.SubElement(case, "system-out").text = _text(lines)


def _lines(outcome: Outcome, report: Report) -> list[str]:
    headline, said = _verdict.headline(report), []
    for finding in outcome.findings:
        said.append(f"{_words.one_line(finding.message)} [{_ranking.promise(finding, headline)}]")
        said += [f"  at {place} {inside}".rstrip() for place, inside in _ranking.places(finding)]
        if finding.fix:
            said.append(f"  fix: {_words.one_line(finding.fix.title)}")
    return said


def _text(value: str) -> str:
    return _ILLEGAL.sub("", _words.clean(value))[:_TEXT_LIMIT]
