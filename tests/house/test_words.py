"""Words that a stranger would stumble over: idioms of our own, with what to say instead."""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.cli import build_parser
from advisor.engine.registry import load_rules
from advisor.testing import run_example

ROOT = Path(__file__).parents[2]
RULES = [rule for rule in load_rules().rules if rule.pack == "builtin"]
DOCS = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]

# Pattern -> what to say instead.
BANNED = {
    r"(?<!-)\banew\b": "again, or in every step",
    r"\bin vain\b": "for nothing, or without effect",
    r"\bbeside (the|its|an?) (loop|step|training|kernels?|run)\b": "concurrently with, during, overlapped with",
    r"\bbeside (computation|workers|each other|other work)\b": "concurrently with",
    r"\b(each|every|one|later|earlier|its|all) turns?\b": "iteration, slot",
    r"\bin turns?\b": "alternately",
    r"\bstands? (still|in the (way|queue)|in no)\b": "waits, blocks, is in no",
    r"\b(was|were|is|are) asked (for|about)\b": "requested, evaluated",
    r"\btold apart\b": "distinguished",
    r"\bnobody\b": "name what is missing: not recorded, not measured, no op",
    r"\bnothing is said\b": "not reported, not judged",
    r"\btakes? its time\b": "say what competes for what",
    r"\b(fetched|taken) from the (driver|system)\b": "allocated",
    r"\b(gives?|gave|given|giving) back\b": "frees, saves",
    r"\bwalk(s|ed)? (through|backward)\b": "traverses, runs through",
    r"\bmended\b": "fixed, repaired",
    r"\bleft aside\b": "ignored, not read",
    r"\bput together\b": "combined, collated, computed",
    r"\bpush(es)? out of the caches?\b": "evicts from the caches",
    r"\bthe fast tenth\b": "the fastest 10 %",
    r"\badd(s|ed|ing)? up (the )?(gradients|losses)\b": "accumulate gradients, sum losses",
    r"\bgo(es)? backward\b": "run a backward pass",
    r"\bdata sets?\b": "dataset",
}


def offences(text: str) -> Iterator[str]:
    """Each banned idiom of a text with its surroundings and what to say instead."""
    flat = " ".join(text.split())
    for pattern, instead in BANNED.items():
        for found in re.finditer(pattern, flat, re.IGNORECASE):
            around = flat[max(found.start() - 40, 0) : found.end() + 40]
            yield f"…{around}…: say {instead}"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_speaks_the_words_of_the_field(rule):
    texts = [rule.page, rule.confirmed, *rule.threshold_reasons().values()]
    for example in rule.examples:
        for finding in run_example(rule, example) if example.saves_us is not None else ():
            texts += [finding.message, finding.saving.how if finding.saving else ""]
            texts += [finding.fix.title, finding.fix.after] if finding.fix else []
    assert list(offences("\n".join(texts))) == []


@pytest.mark.parametrize("name", DOCS)
def test_pages_speak_the_words_of_the_field(name):
    assert list(offences((ROOT / name).read_text("utf-8"))) == []


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "docs" / "schemas").glob("*.json")))
def test_descriptions_of_fields_speak_the_words_of_the_field(name):
    told: list[object] = []
    text = (ROOT / "docs" / "schemas" / name).read_text("utf-8")
    json.loads(text, object_hook=lambda one: told.append(one.get("description")))
    texts = [one for one in told if isinstance(one, str)]
    assert texts
    assert list(offences("\n".join(texts))) == []


@pytest.mark.parametrize("path", sorted((ROOT / "advisor" / "agents").glob("*.*")), ids=lambda path: path.name)
def test_texts_for_agents_speak_the_words_of_the_field(path):
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        nodes = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
        text = "\n".join(value for value in nodes if isinstance(value, str))
    assert list(offences(text)) == []


@pytest.mark.parametrize("command", sorted(path.stem for path in (ROOT / "advisor" / "commands").glob("[a-z]*.py")))
def test_help_speaks_the_words_of_the_field(command):
    parsers = [build_parser([command])]
    for parser in parsers:
        parsers += [one for action in parser._actions for one in _subparsers(action)]
    assert list(offences("\n".join(parser.format_help() for parser in parsers))) == []


def _subparsers(action: argparse.Action) -> list[argparse.ArgumentParser]:
    return list(action.choices.values()) if isinstance(action, argparse._SubParsersAction) else []


def test_a_banned_word_is_found():
    assert len(list(offences("Each turn computes its mask anew, and nobody reads it."))) == 3


def cut_off(source: str) -> Iterator[int]:
    """Lines of strings that stand alone and are no docstring: the second half of a text, lost without parentheses."""
    for node in ast.walk(ast.parse(source)):
        for block in ("body", "orelse", "finalbody"):
            statements = getattr(node, block, None)
            if isinstance(statements, list):
                alone = [isinstance(one, ast.Expr) and _is_text(one.value) for one in statements]
                yield from (one.lineno for one, is_text in list(zip(statements, alone, strict=True))[1:] if is_text)


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Constant) and isinstance(value.value, str))


@pytest.mark.parametrize("folder", ["advisor", "reports", "rules"])
def test_no_text_is_cut_off(folder):
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert [f"{path}:{line}" for path in paths for line in cut_off(path.read_text("utf-8"))] == []


def test_a_text_that_is_cut_off_is_found():
    assert list(cut_off('def f():\n    """Its page."""\n    return "half "\n    "of it"\n')) == [4]
