"""SARIF 2.1.0 for code scanning: a result per finding, at the user's line.

Kept within what a forge accepts: 5,000 results are shown of a run, a rule has at most 20 tags, and a result without
a location makes the whole file fail, so one without a line of its own points at what was run.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any
from urllib.parse import quote

from advisor.api import Finding, Outcome, Report, Source

from . import _labels, _ranking, _verdict, _words

_RESULTS = 5000
_LOCATIONS = 10
_TEXT_LIMIT = 2000
_LEVELS = {"high": "error", "medium": "warning", "low": "note"}
Json = dict[str, Any]


def render(report: Report) -> str:
    """The findings as a SARIF log of one run."""
    outcomes = sorted(report.outcomes, key=lambda outcome: outcome.rule)
    indexes = {outcome.rule: index for index, outcome in enumerate(outcomes)}
    driver: Json = {
        "name": "Torch Advisor",
        "semanticVersion": report.run.versions.get("torch-advisor", ""),
        "rules": [_rule(outcome) for outcome in outcomes],
    }
    if not driver["semanticVersion"]:
        del driver["semanticVersion"]
    seen: Counter[str] = Counter()
    said = _verdict.headline(report)  # once: it looks at every finding
    results = [
        _result(report, said, outcome, finding, indexes[outcome.rule], seen)
        for outcome, finding in report.findings()[:_RESULTS]
    ]
    run = {
        "tool": {"driver": driver},
        "invocations": [_invocation(outcomes)],
        "results": results,
        "columnKind": "unicodeCodePoints",
    }
    log = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(log, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _rule(outcome: Outcome) -> Json:
    title = _text(outcome.title or outcome.rule)
    found: Json = {
        "id": _text(outcome.rule),
        "shortDescription": {"text": title},
        "help": {"text": _text(outcome.page, 8000) or title},
        "properties": {"tags": ["performance", *([] if outcome.confirmed else ["unconfirmed"])]},
    }
    return found


def _result(
    report: Report, said: _verdict.Headline, outcome: Outcome, finding: Finding, index: int, seen: Counter[str]
) -> Json:
    step_us, worth = said.step_us, _words.sentence(_ranking.promise(finding, said))
    fix = f" Fix: {_words.one_line(finding.fix.title)}." if finding.fix else ""
    result: Json = {
        "ruleId": _text(outcome.rule),
        "ruleIndex": index,
        "level": "note" if not outcome.confirmed or not finding.recoverable else _LEVELS[finding.severity],
        "message": {"text": _text(f"{_words.one_line(finding.message)} ({worth}.){fix}")},
        "locations": [_location(source) for source in finding.where[:_LOCATIONS]] or [_somewhere(report)],
        "partialFingerprints": {"ruleFileFunction/v1": _fingerprint(outcome, finding, seen)},
        "properties": _properties(finding, step_us),
    }
    if finding.saving and step_us:
        # Of a bound nothing is certain but its low end: it ranks behind what is sure to save something.
        us = finding.saving.low_us if finding.saving.is_bound(step_us) else finding.saving.high_us
        result["rank"] = round(min(100.0, us / step_us * 100), 2)
    return result


def _properties(finding: Finding, step_us: float | None) -> Json:
    found: Json = {"severity": finding.severity}
    if finding.saving:
        low, high = (round(value / 1000, 6) for value in (finding.saving.low_us, finding.saving.high_us))
        found["savingMs"] = {"low": low, "high": high, "basis": finding.saving.basis}
    if step_us is not None:
        found["stepMs"] = round(step_us / 1000, 6)
    if finding.fix:
        found["risk"] = _labels.RISKS[finding.fix.risk].name
    if finding.ranks:
        found["ranks"] = list(finding.ranks[:100])
    return found


def _fingerprint(outcome: Outcome, finding: Finding, seen: Counter[str]) -> str:
    """Stays the same when lines move: the rule, the file and the function; the second of its kind gets a number."""
    where = finding.where[0] if finding.where else Source("", 0)
    text = "\0".join((outcome.rule, where.file, where.function))
    key = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:32]
    seen[key] += 1
    return f"{key}:{seen[key]}"


def _location(source: Source) -> Json:
    place: Json = {"physicalLocation": {"artifactLocation": _artifact(source.file)}}
    if source.line >= 1:
        place["physicalLocation"]["region"] = {"startLine": source.line}
    if source.function:
        place["logicalLocations"] = [{"name": _text(source.function), "kind": "function"}]
    return place


def _somewhere(report: Report) -> Json:
    """What was run, for a finding without a line: the script, else the trace."""
    scripts = [word for word in report.run.command if word.endswith(".py")]
    return {"physicalLocation": {"artifactLocation": _artifact([*scripts, *report.run.files, "unknown"][0])}}


def _artifact(file: str) -> Json:
    """A file as an address: below the checkout, below the user's home (whose name stays out), or absolute."""
    path = _words.path(file).replace("\\", "/")
    if path.startswith("~/"):
        return {"uri": quote(path[2:]), "uriBaseId": "HOME"}
    if path.startswith("/"):
        return {"uri": f"file://{quote(path)}"}
    return {"uri": quote(path.removeprefix("./")) or "unknown", "uriBaseId": "%SRCROOT%"}


def _invocation(outcomes: list[Outcome]) -> Json:
    """That the run worked, and what was skipped or failed in it."""
    levels = {"skipped": "note", "error": "error"}
    said = [
        {
            "level": levels[outcome.status],
            "message": {"text": _text(f"{outcome.rule} {outcome.status}: {outcome.reason}")},
            "associatedRule": {"id": _text(outcome.rule)},
        }
        for outcome in outcomes
        if outcome.status in levels
    ]
    return {"executionSuccessful": True, "toolExecutionNotifications": said}


def _text(value: str, limit: int = _TEXT_LIMIT) -> str:
    return _words.clean(value)[:limit]
