"""A rule: one module with a page (its docstring), a `check`, and `EXAMPLES`.

A check keeps nothing from one call to the next: of a large trace two rules are asked at a time, each in a thread.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from msgspec import Struct

from advisor.model import Finding

SECTIONS = ("What it looks at", "Why it costs time", "How to fix it", "When to leave it")


class Example(Struct, frozen=True):
    """A drawn trace and what the rule must report for it.

    saves_us: the range (low, high), µs per step, that must contain both ends of the finding's saving; None, or left
    out = the rule must find nothing; "unknown" = a finding whose saving is null.
    facts: what capture recorded, as in run.json; empty = a trace without it.
    says: words that the message must contain.
    fixes: words that the fix must contain, in its title or its lines.
    skipped: if the rule cannot judge, words that its reason must contain. Finding nothing would prove nothing then.
    lines: the drawn trace of a step whose lines were recorded (`advisor:line|file|line|function` and
    `advisor:module|path|class` events in addition to the ops of `trace`).
    others, other_facts: the traces and facts of the job's other ranks, for rules that request `Ranks`.
    """

    title: str
    trace: Mapping[str, Any]
    saves_us: tuple[float, float] | str | None = None
    facts: dict[str, Any] | None = None
    says: tuple[str, ...] = ()
    near_miss: bool = False
    others: tuple[Mapping[str, Any], ...] = ()
    other_facts: tuple[dict[str, Any], ...] = ()
    fixes: tuple[str, ...] = ()
    skipped: str = ""
    lines: Mapping[str, Any] | None = None


class Rule(Struct, frozen=True):
    """A loaded rule module.

    family: the docstring of its sub-package in the pack, "Data loading"; empty for a flat pack.
    """

    id: str
    title: str
    page: str
    check: Callable[..., Iterator[Finding]]
    examples: tuple[Example, ...]
    confirmed: str
    pack: str
    family: str = ""

    @property
    def thresholds(self) -> dict[str, Any]:
        """The keyword-only parameters of check with their defaults: what a configuration may set."""
        return {
            name: parameter.default
            for name, parameter in inspect.signature(self.check).parameters.items()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        }

    def threshold_reasons(self) -> dict[str, str]:
        """Why each threshold has its value: the comment on the parameter's line."""
        return dict(
            re.findall(r"^\s*(\w+)\s*:[^=\n]+=\s*[^#\n]+#\s*(.+)$", inspect.getsource(self.check), re.MULTILINE)
        )

    def section(self, title: str) -> str:
        """The text below `## title` of the page; empty where the page lacks it."""
        found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", self.page, re.MULTILINE | re.DOTALL)
        return found[1].strip() if found else ""


class BadRuleError(Exception):
    """A module that lies in a rule pack and is no rule; the message says what it lacks."""


def from_module(module: ModuleType, pack: str, family: str = "") -> Rule:
    """The rule that a module is. Raises BadRuleError when something is missing."""
    page = inspect.cleandoc(module.__doc__ or "")
    check = getattr(module, "check", None)
    if not page:
        raise BadRuleError("it has no docstring; the docstring is the rule's page")
    if not callable(check):
        raise BadRuleError("it has no function check(...)")
    return Rule(
        id=module.__name__.rpartition(".")[2].replace("_", "-"),
        title=page.splitlines()[0].rstrip("."),
        page=page,
        check=check,
        examples=tuple(getattr(module, "EXAMPLES", ())),
        confirmed=str(getattr(module, "CONFIRMED", "")),
        pack=pack,
        family=family,
    )
