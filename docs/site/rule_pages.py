"""A page for each rule, made of its docstring, and the page that lists them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from advisor.engine.rule import Rule


def menu(rules: Iterable[Rule]) -> list[dict[str, list[dict[str, str]]]]:
    """family -> its rules' pages, for the menu."""
    return [
        {family: [{rule.id: f"rules/{rule.id}.md"} for rule in found]} for family, found in _by_family(rules).items()
    ]


def index(rules: Iterable[Rule]) -> str:
    """Every rule in a line, by family."""
    parts = [
        "# Rules",
        "What each rule finds. *Confirmed*: a recorded trace or a measured pair of scripts shows the rule to be right. "
        "A report lists findings of the others separately.",
        "`advisor rules` prints this list, `advisor explain RULE` a rule's page. "
        "[Contributing](../contributing.md) leads through writing one.",
    ]
    for family, found in _by_family(rules).items():
        parts += [f"## {family}", _table(("rule", "finds", "confirmed"), [_row(rule) for rule in found])]
    return "\n\n".join(parts) + "\n"


def page(rule: Rule) -> str:
    """What it looks at, why it costs time, how to fix it, when to leave it; thresholds; what confirms it."""
    title, _, sections = rule.page.partition("\n")
    return "\n\n".join(
        [
            f"# {rule.id}",
            f"**{title}**",
            _status(rule),
            sections.strip(),
            "## Thresholds",
            _thresholds(rule),
            f"In a terminal: `advisor explain {rule.id}`.",
        ]
    )


def _by_family(rules: Iterable[Rule]) -> dict[str, list[Rule]]:
    ordered = sorted(rules, key=lambda rule: (rule.family.lower(), rule.id))
    return {family: list(found) for family, found in groupby(ordered, lambda rule: rule.family)}


def _row(rule: Rule) -> tuple[str, ...]:
    return f"[`{rule.id}`]({rule.id}.md)", rule.title, "yes" if rule.confirmed else "not yet"


def _status(rule: Rule) -> str:
    """What confirms the rule, set apart."""
    if rule.confirmed:
        return f'!!! success "Confirmed"\n    {_sentence(rule.confirmed)}'
    return (
        '!!! warning "Not confirmed yet"\n    Drawn examples alone support this rule: reports list its findings '
        "separately, and never among the first actions."
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _thresholds(rule: Rule) -> str:
    if not rule.thresholds:
        return "It has none."
    reasons = rule.threshold_reasons()
    rows = [(f"`{name}`", f"`{value}`", reasons.get(name, "")) for name, value in rule.thresholds.items()]
    name, value = next(iter(rule.thresholds.items()))
    return (
        f"{_table(('threshold', 'default', 'why'), rows)}\n\n"
        "Set them in `pyproject.toml` ([configuration](../configuration.md)):\n\n"
        f"```toml\n[tool.torch-advisor.rules.{rule.id}]\n{name} = {_toml(value)}\n```"
    )


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
