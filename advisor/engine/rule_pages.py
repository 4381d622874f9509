"""Text made from rule modules: pages, lists and tables, so that no copy of them can drift."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from advisor.engine.registry import Rules
from advisor.engine.rule import Rule

# A line that stands by itself: a heading, code (indented or fenced), a row of a table.
_AS_IT_IS = re.compile(r"#|    |\t|```|\||$")
_ITEM = re.compile(r"([-*]|\d+\.) ")


def page(rule: Rule, width: int | None = None) -> str:
    """The rule's page with its id, its thresholds and how it was confirmed.

    Sentences are filled to `width` characters; None leaves the lines as the rule's author broke them.
    """
    lines = [*_filled(f"{rule.id}: {rule.page}", width), "", "## Thresholds"]
    reasons = rule.threshold_reasons()
    for name, value in rule.thresholds.items():
        lines += _broken(f"{name} = {value}  ({reasons.get(name, 'no reason given')})", width, indent=2)
    if not rule.thresholds:
        lines.append("none")
    confirmed = rule.confirmed or "nothing yet: unconfirmed rules are listed separately"
    lines += ["", "## Confirmed by", *_broken(confirmed, width)]
    if rule.family:
        lines += ["", f"Family: {rule.family}."]
    if rule.pack != "builtin":
        lines += ["", f"From the pack '{rule.pack}'."]
    return "\n".join(lines)


def listing(rules: Rules, width: int | None = None) -> str:
    """Rules by family, each id with its title in a column of its own; one line per rule where `width` is None."""
    column = max((len(one) for one in [*rules.by_id(), *(broken.rule for broken in rules.broken)]), default=0) + 2
    blocks = [
        [family, *(_row(rule.id, rule.title, column, width) for rule in found)]
        for family, found in _families(rules).items()
    ]
    if rules.broken:
        blocks.append(["Failed to load", *(_row(broken.rule, broken.reason, column, width) for broken in rules.broken)])
    return "\n\n".join("\n".join(block) for block in blocks)


def _row(name: str, says: str, column: int, width: int | None) -> str:
    return "\n".join(_broken(f"{name:<{column}}{says}", width, indent=column))


def table(rules: Rules) -> str:
    """The families of rules as a Markdown table."""
    lines = ["| family | rules |", "|---|---|"]
    lines += [
        f"| {family} | {', '.join(f'`{rule.id}`' for rule in found)} |" for family, found in _families(rules).items()
    ]
    return "\n".join(lines)


def _families(rules: Rules) -> dict[str, list[Rule]]:
    """family -> its rules, both in alphabetical order; rules of a flat pack are a family under the pack's name."""
    found: dict[str, list[Rule]] = {}
    for rule in sorted(rules.rules, key=lambda rule: (_family(rule).lower(), rule.id)):
        found.setdefault(_family(rule), []).append(rule)
    return found


def _family(rule: Rule) -> str:
    return rule.family or f"Pack '{rule.pack}'"


def _filled(text: str, width: int | None) -> list[str]:
    """The lines of a page with each paragraph filled anew; headings, code and tables stay as they are."""
    if width is None:
        return text.splitlines()
    return [line for paragraph in _paragraphs(text) for line in _broken(paragraph, width)]


def _paragraphs(text: str) -> Iterator[str]:
    """Lines that belong together as one; what is to stay as it is comes line by line."""
    held, fenced = "", False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        alone = fenced or _AS_IT_IS.match(line) is not None
        if held and (alone or _ITEM.match(line)):
            yield held
            held = ""
        if alone:
            yield line
        else:
            held = f"{held} {line.strip()}" if held else line
    if held:
        yield held


def _broken(line: str, width: int | None, indent: int = 0) -> list[str]:
    """One line as lines of at most `width` characters, those after the first indented; nothing within a word."""
    if width is None or len(line) <= width or (not indent and _AS_IT_IS.match(line)):
        return [line]
    # A column is worth its indentation only where room for words is left beside it.
    indent = indent if indent <= width // 2 else 2
    return textwrap.wrap(line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
