"""Text made from rule modules: pages, lists and tables, so that no copy of them can drift."""

from __future__ import annotations

from advisor.registry import Rules
from advisor.rule import Rule


def page(rule: Rule) -> str:
    """The rule's page with its id, its thresholds and how it was confirmed."""
    lines = [f"{rule.id}: {rule.page}", "", "## Thresholds"]
    reasons = rule.threshold_reasons()
    for name, value in rule.thresholds.items():
        lines.append(f"{name} = {value}  ({reasons.get(name, 'no reason given')})")
    if not rule.thresholds:
        lines.append("none")
    lines += ["", "## Confirmed by", rule.confirmed or "nothing yet: unconfirmed rules are listed apart"]
    if rule.pack != "builtin":
        lines += ["", f"From the pack '{rule.pack}'."]
    return "\n".join(lines)


def listing(rules: Rules) -> str:
    """One line per rule: id and title."""
    width = max((len(rule.id) for rule in rules.rules), default=0)
    lines = [f"{rule.id:<{width}}  {rule.title}" for rule in rules.rules]
    lines += [f"{broken.rule:<{width}}  did not load: {broken.reason}" for broken in rules.broken]
    return "\n".join(lines)


def table(rules: Rules) -> str:
    """The rules as a Markdown table."""
    lines = ["| rule | what it finds |", "|---|---|"]
    lines += [f"| `{rule.id}` | {rule.title} |" for rule in rules.rules]
    return "\n".join(lines)
