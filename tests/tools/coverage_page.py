"""The page docs/coverage.md, generated from docs/coverage.toml and the rules.

python tests/tools/coverage_page.py           prints the page
python tests/tools/coverage_page.py --renew   writes it
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DATA = ROOT / "docs" / "coverage.toml"
PAGE = ROOT / "docs" / "coverage.md"

Row = Mapping[str, Any]
REAL, PAIR, DRAWN = "real trace", "measured pair", "synthetic only"
WHY = {
    "yet": "not yet",
    "outside": "in no trace",
    "counter": "hardware counters",
    "vendor": "other accelerators",
    "training": "not about training",
}


def data() -> dict[str, Any]:
    """The file, parsed."""
    return tomllib.loads(DATA.read_text("utf-8"))


def confirmations() -> dict[str, str]:
    """Rule id -> what confirms it, for the built-in rules."""
    from advisor.engine.registry import load_rules

    return {rule.id: confirmation(rule.confirmed) for rule in load_rules().rules if rule.pack == "builtin"}


def confirmation(confirmed: str) -> str:
    """A rule's own sentence in two words; without one it has only synthetic examples."""
    if not confirmed:
        return DRAWN
    return REAL if confirmed.lower().startswith("real trace") else PAIR


def best(row: Row, known: Mapping[str, str]) -> str:
    """The strongest confirmation among the row's rules; empty where it has none."""
    found = {known.get(rule, DRAWN) for rule in row.get("rules", ())}
    return next((level for level in (REAL, PAIR, DRAWN) if level in found), "")


def kind(row: Row, known: Mapping[str, str]) -> str:
    """confirmed | unconfirmed | report | or why it is not covered."""
    level = best(row, known)
    if level:
        return "unconfirmed" if level == DRAWN else "confirmed"
    return "report" if "by" in row else str(row["why"])


def page() -> str:
    """The whole page."""
    found, known = data(), confirmations()
    parts = [_head(), *_counts(found, known), *_rows(found, known), *_pathologies(found, known), *_rules(known)]
    return "\n".join(parts).rstrip() + "\n"


def _head() -> str:
    return """# What is covered

What twenty other tools look for (their 191 rules, with duplicates merged and reworded), and what finds it here.
*Confirmed* refers to the rule, not to each line: a real trace that was recorded elsewhere contains the fault, or a pair
of scripts that differ in it was measured. *Synthetic only*: the rule has only synthetic examples; reports list its
findings separately, except for measured waits of the device, and call their savings unconfirmed. No saving has been
confirmed on a GPU yet.

This page is generated: `python tests/tools/coverage_page.py --renew`.
"""


def _counts(found: Mapping[str, Any], known: Mapping[str, str]) -> Iterator[str]:
    rows = list(found["rows"].values())
    kinds = Counter(kind(row, known) for row in rows)
    part = Counter(kind(row, known) for row in rows if "part" in row)
    yield f"| of {len(rows)} rules | number | of them in part |\n|---|--:|--:|"
    yield f"| found by a confirmed rule | {kinds['confirmed']} | {part['confirmed']} |"
    yield f"| found by a rule with synthetic examples only | {kinds['unconfirmed']} | {part['unconfirmed']} |"
    yield f"| shown by a metric, a table, a check or the gate, without a rule | {kinds['report']} | {part['report']} |"
    for why, words in WHY.items():
        yield f"| not covered: {words} | {kinds[why]} | |"
    yield ""


def _rows(found: Mapping[str, Any], known: Mapping[str, str]) -> Iterator[str]:
    for area, title in found["areas"].items():
        yield f"## {title}\n"
        yield "| | what | found by | confirmed by |\n|---|---|---|---|"
        for number, row in found["rows"].items():
            if number.startswith(area):
                yield f"| {number} | {row['what']} | {_found_by(row)} | {best(row, known) or '–'} |"
        yield ""


def _found_by(row: Row) -> str:
    """Rules, other ways and what is missing, or why it is not covered."""
    if "why" in row:
        note = f": {row['note']}" if "note" in row else ""
        return f"*{WHY[row['why']]}*{note}"
    ways = [", ".join(f"`{rule}`" for rule in row.get("rules", ())), row.get("by", "")]
    missing = f" (in part: {row['part']})" if "part" in row else ""
    return "; ".join(way for way in ways if way) + missing


def _pathologies(found: Mapping[str, Any], known: Mapping[str, str]) -> Iterator[str]:
    rows = found["pathologies"]
    kinds = Counter(kind(row, known) for row in rows.values())
    yield "## Forty faults of training scripts\n"
    yield (
        f"{kinds['confirmed']} are found by a confirmed rule, {kinds['unconfirmed']} by one with "
        f"synthetic examples only, {kinds['yet']} not yet. Measurements of the "
        "pairs are in [accuracy-pairs.md](accuracy-pairs.md).\n"
    )
    yield "| | fault | found by | confirmed by | script in `samples/` |\n|--:|---|---|---|---|"
    for number, row in rows.items():
        scripts = ", ".join(f"`{script}`" for script in row.get("sample", ())) or "–"
        yield f"| {number} | {row['what']} | {_found_by(row)} | {best(row, known) or '–'} | {scripts} |"
    yield ""


def _rules(known: Mapping[str, str]) -> Iterator[str]:
    from advisor.engine.registry import load_rules

    yield "## What confirms each rule\n"
    yield "| rule | confirmed by |\n|---|---|"
    for rule in load_rules().rules:
        if rule.id in known:
            yield f"| `{rule.id}` | {rule.confirmed or 'synthetic examples only: *unconfirmed*'} |"


if __name__ == "__main__":
    text = page()
    if "--renew" in sys.argv[1:]:
        PAGE.write_text(text, "utf-8")
    else:
        print(text, end="")
