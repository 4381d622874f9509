"""Runs the drawn examples of rules, of the built-in pack and of any other.

import pytest
from advisor.testing import check_example, examples

@pytest.mark.parametrize(("rule", "example"), examples("my-pack"))
def test_example(rule, example):
    check_example(rule, example)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

import msgspec

from advisor.analyses.lines.lines import LinesTrace
from advisor.analyses.matching.cut_iterations import closed
from advisor.capture.record import RankRecord
from advisor.computed import Computed, Missing
from advisor.engine.registry import load_rules
from advisor.engine.rule import Example, Rule
from advisor.model import Finding
from advisor.ranks.rank_facts import RankFacts
from advisor.ranks.ranks import Ranks
from advisor.trace.events import Trace
from advisor.trace.read.load import read_bytes


class ExampleError(AssertionError):
    """A rule does not report for its example what the example claims; the message states both."""


def examples(pack: str | None = None) -> Iterator[tuple[Rule, Example]]:
    """Every example of every rule that loads, of one pack or of all."""
    for rule in load_rules().rules:
        if pack in (None, rule.pack):
            yield from ((rule, example) for example in rule.examples)


def computed(example: Example) -> Computed:
    """The example as rules see it: its drawing read by the real reader, with the facts of its run.json.

    An example with `others` is a job: its first trace is rank 0, and a rule may also request `Ranks`.
    """
    if not example.others:
        lines = LinesTrace(_read(example.lines)) if example.lines is not None else None
        return _of_rank(example.trace, example.facts, lines=lines)
    drawn = [(example.trace, example.facts), *zip_longest(example.others, example.other_facts)]
    facts = [_of_rank(trace, known).get(RankFacts) for trace, known in drawn]
    return _of_rank(example.trace, example.facts, ranks=Ranks.of(range(len(facts)), facts, 0))


def _of_rank(drawing: Mapping[str, Any], facts: dict[str, Any] | None, **more: Any) -> Computed:
    record = None if facts is None else msgspec.convert(facts, RankRecord)
    return Computed(trace=closed(_read(drawing)), record=record, **more)


def _read(drawing: Mapping[str, Any]) -> Trace:
    return read_bytes(json.dumps(dict(drawing)).encode(), "example.pt.trace.json")


def run_example(rule: Rule, example: Example) -> tuple[Finding, ...]:
    """What the rule finds in the example; nothing if it is skipped."""
    return _judged(rule, computed(example))[0]


def _judged(rule: Rule, known: Computed) -> tuple[tuple[Finding, ...], str]:
    """What the rule finds there, and why it is skipped; empty if it is not."""
    try:
        return tuple(rule.check(**known.arguments(rule.check))), ""
    except Missing as missing:
        return (), str(missing)


def check_example(rule: Rule, example: Example, known: Computed | None = None) -> tuple[Finding, ...]:
    """Runs the example and returns its findings. Raises ExampleError, one line, if it is not as claimed.

    saves_us (low, high): there is a finding, and the low and the high end of its saving are in that range.
    saves_us "unknown": there is a finding whose saving is null. saves_us None: there is no finding.
    skipped: the rule cannot judge, and its reason contains these words;  without `skipped` it must judge.
    says: the message of a finding contains each of these words;  fixes: the fix of a finding does.
    known: `computed(example)`, if that is at hand.
    """
    where = f"{rule.id}, example '{example.title}'"
    findings, why = _judged(rule, known if known is not None else computed(example))
    if bool(why) != bool(example.skipped) or example.skipped not in why:
        said = f"skipped, because {why}" if why else "is judged"
        raise ExampleError(f"{where}: {said}; the example says: skipped={example.skipped!r}")
    if example.saves_us is None:
        if findings:
            raise ExampleError(f"{where}: should find nothing, but found: {findings[0].message}")
        return findings
    if not findings:
        raise ExampleError(f"{where}: should find something, but found nothing")
    if not any(_as_claimed(finding, example.saves_us) for finding in findings):
        savings = ", ".join(_in_words(finding) for finding in findings)
        raise ExampleError(f"{where}: claims a saving within saves_us={example.saves_us}, got {savings}")
    for words in example.says:
        if not any(words in finding.message for finding in findings):
            raise ExampleError(f"{where}: '{words}' is not in the message: {findings[0].message}")
    for words in example.fixes:
        if not any(words in _lines_of(finding) for finding in findings):
            raise ExampleError(f"{where}: '{words}' is not in the fix: {_lines_of(findings[0])}")
    return findings


def _lines_of(finding: Finding) -> str:
    fix = finding.fix
    return f"{fix.title}\n{fix.after}" if fix is not None else "none"


def _as_claimed(finding: Finding, claim: tuple[float, float] | str) -> bool:
    if isinstance(claim, str):
        return finding.saving is None
    low, high = claim
    return finding.saving is not None and low <= finding.saving.low_us <= finding.saving.high_us <= high


def _in_words(finding: Finding) -> str:
    return f"({finding.saving.low_us:.0f}, {finding.saving.high_us:.0f})" if finding.saving else "unknown"
