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
    confirmed = rule.confirmed or "nothing yet: unconfirmed rules are listed apart"
    lines += ["", "## Confirmed by", *_broken(confirmed, width)]
    if rule.pack != "builtin":
        lines += ["", f"From the pack '{rule.pack}'."]
    return "\n".join(lines)


def listing(rules: Rules, width: int | None = None) -> str:
    """Each rule's id and title in a column of its own; one line per rule where `width` is None."""
    rows = [(rule.id, rule.title) for rule in rules.rules]
    rows += [(broken.rule, f"did not load: {broken.reason}") for broken in rules.broken]
    column = max((len(name) for name, _ in rows), default=0) + 2
    return "\n".join(line for name, says in rows for line in _broken(f"{name:<{column}}{says}", width, indent=column))


def table(rules: Rules) -> str:
    """The rules as a Markdown table."""
    lines = ["| rule | what it finds |", "|---|---|"]
    lines += [f"| `{rule.id}` | {rule.title} |" for rule in rules.rules]
    return "\n".join(lines)


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
