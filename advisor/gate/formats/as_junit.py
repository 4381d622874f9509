"""The gate's result as JUnit XML: a suite per kind of evidence, a case per quantity; inconclusive is *skipped*."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree as Xml

from advisor.gate import verdict, words
from advisor.gate.formats.as_text import describe
from advisor.gate.model import Result, Row


def render(result: Result) -> str:
    """The XML document."""
    root = Xml.Element("testsuites", name="torch-advisor gate")
    gate = Xml.SubElement(root, "testsuite", name="verdict")
    _case(gate, "gate", _outcome(result.verdict), result.reason)
    if result.step_time:
        decision, reason = verdict.of_step_time(result.step_time)
        _case(gate, "step time", _outcome(decision), reason)
    _suite(root, "counters", [row for row in result.counters if row.gated or row.status != "same"])
    _suite(root, "budgets", result.budgets)
    if result.new_findings:
        suite = Xml.SubElement(root, "testsuite", name="new findings")
        for flag in result.new_findings:
            _case(suite, flag.rule, "skipped", f"{words.worth(flag)}: {flag.message} {flag.where}".strip())
    for suite in root:
        for name, tag in (("failures", "failure"), ("skipped", "skipped")):
            suite.set(name, str(len(suite.findall(f"testcase/{tag}"))))
        suite.set("tests", str(len(suite)))
        suite.set("errors", "0")
    Xml.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + Xml.tostring(root, encoding="unicode") + "\n"


def _suite(root: Xml.Element, name: str, rows: Sequence[Row]) -> None:
    if rows:
        suite = Xml.SubElement(root, "testsuite", name=name)
        for row in rows:
            failed = row.gated and row.status == "worse"
            open_ = row.status in ("unsteady", "not measured") or (row.status == "worse" and not row.gated)
            _case(suite, row.id, "failure" if failed else "skipped" if open_ else "", describe(row))


def _outcome(decision: str) -> str:
    return {"pass": "", "regression": "failure"}.get(decision, "skipped")


def _case(suite: Xml.Element, name: str, outcome: str, message: str) -> None:
    case = Xml.SubElement(
        suite, "testcase", name=_plain(name), classname=f"gate.{suite.get('name', '')}".replace(" ", "_")
    )
    if outcome:
        Xml.SubElement(case, outcome, message=_plain(message))
    else:
        Xml.SubElement(case, "system-out").text = _plain(message)


def _plain(text: str) -> str:
    """Text without the control characters and lone surrogates that no XML may hold."""
    return re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)
