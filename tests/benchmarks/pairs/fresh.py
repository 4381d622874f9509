"""Advice on scripts that were written without a look at the rules (tests/fresh), against what mending them saves.

    python tests/benchmarks/pairs/fresh.py                   everything that has no result yet, then the table
    python tests/benchmarks/pairs/fresh.py --only nerf       one or more scripts (a part of the name is enough)
    python tests/benchmarks/pairs/fresh.py --minutes 5       stop after about 5 minutes; the next call goes on
    python tests/benchmarks/pairs/fresh.py --table           only the table, from the results that there are

slow.py and fixed.py run in turns without a profiler; then `advisor run` looks at each, and at the healthy scripts.
Nothing is declared about rules beforehand. `names` in a batch's fresh.toml is filled in afterwards by a person: the
rules whose findings on slow.py say what is wrong with it. Never tune on these scripts. Measure on a machine that does
nothing else.
"""

from __future__ import annotations

import statistics
import sys
import tomllib
from pathlib import Path
from typing import Any

import pair_table
import pairs
from pair_table import CONTROL_LIMIT, KEPT_AT_LEAST, MATERIAL, PROMISE, findings, percent, share

FRESH = Path(__file__).parents[2] / "fresh"
Row = dict[str, Any]


def cases() -> list[pairs.Case]:
    """Every script of every batch, in the order of batches."""
    faulty = [
        pairs.Case(name, "fresh", {role: path.parent / name / f"{role}.py" for role in ("slow", "fixed")}, facts)
        for path in sorted(FRESH.glob("batch_*/fresh.toml"))
        for name, facts in tomllib.loads(path.read_text("utf-8")).items()
    ]
    healthy = sorted(FRESH.glob("batch_*/healthy/*.py"))
    return faulty + [pairs.Case(path.stem, "healthy", {"slow": path}, {}) for path in healthy]


def fault_line(name: str, snippet: str) -> int:
    """The number of the line of slow.py that holds the snippet."""
    slow = next(FRESH.glob(f"batch_*/{name}/slow.py"))
    lines = slow.read_text("utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if snippet in line)


def is_at(finding: Row, line: int, places: int | None = None) -> bool:
    """Whether one of the finding's places, or of the first so many, is this line of slow.py."""
    named = finding["where"][:places]
    return any(place["line"] == line and Path(place["file"]).name == "slow.py" for place in named)


def promise_at(found: list[Row], line: int) -> Row | None:
    """What is promised at a line: the largest saving there; those of one rule count together."""
    there = [f for f in found if is_at(f, line) and f["high"] is not None]
    if not there:
        return None
    first = max(there, key=lambda f: f["high"])
    same = [f for f in there if f["rule"] == first["rule"]]
    return first | {"low": sum(f["low"] for f in same), "high": min(1.0, sum(f["high"] for f in same))}


def judged(result: Row) -> Row:
    """One script's row. None where a question does not apply."""
    facts, measured, advised = result["facts"], result.get("measured"), result.get("advised", {})
    slow, names = advised.get("slow", {}), set(facts["names"])
    found = findings(slow)
    material = [f for f in found if (f["high"] or 0.0) >= MATERIAL]
    line = fault_line(result["name"], facts["line"])
    promise = promise_at(found, line)
    row: Row = {"name": result["name"], "line": line, "measured": measured, "findings": material, "promise": promise}
    row["asked"], row["failed"] = bool(slow), slow.get("failed") or advised.get("fixed", {}).get("failed") or ""
    row["counts"] = bool(measured) and measured["low"] > 0 and row["asked"] and not row["failed"]
    row["named"] = any(f["rule"] in names for f in found)
    row["named_first"] = bool(material) and material[0]["rule"] in names
    row["line_any"] = any(is_at(f, line) for f in found)
    row["line_first"] = bool(material) and is_at(material[0], line, places=1)
    row["inside"] = row["meets"] = row["wrong"] = None
    if promise and measured:
        row["inside"] = promise["low"] <= measured["saving"] <= promise["high"]
        row["meets"] = promise["low"] <= measured["high"] and measured["low"] <= promise["high"]
        row["wrong"] = promise["high"] >= PROMISE and measured["saving"] <= KEPT_AT_LEAST
    row["on_fixed"] = [f for f in findings(advised.get("fixed", {})) if (f["high"] or 0.0) >= PROMISE]
    return row


def figures(rows: list[Row], healthy: list[Row]) -> list[tuple[str, str, str]]:
    """(figure, value, goal). Counted are scripts whose measured interval lies above zero and that got a report."""
    counted = [row for row in rows if row["counts"]]
    promised = [row for row in counted if row["promise"]]
    first = [row["findings"][0] for row in counted if row["findings"]]
    widths = [row["promise"]["high"] - row["promise"]["low"] for row in promised]
    every = [row for row in rows if row["wrong"] is not None]
    loud = [f for r in healthy for f in findings(r["advised"]["slow"]) if (f["high"] or 0.0) >= PROMISE]
    quiet = [r for r in healthy if all((f["high"] or 0.0) <= CONTROL_LIMIT for f in findings(r["advised"]["slow"]))]

    def part(key: str, of: list[Row]) -> str:
        return share(sum(bool(row[key]) for row in of), len(of))

    return [
        ("scripts measured / whose fault shows here", f"{len(rows)} / {len(counted)}", "≥ 40"),
        ("cause named", part("named", counted), "≥ 90 %"),
        ("cause named first", part("named_first", counted), ""),
        ("right line, any place of any finding", part("line_any", counted), "≥ 80 %"),
        ("right line, first place of the first finding", part("line_first", counted), ""),
        ("measured inside the range promised at the line", part("inside", promised), "≥ 75 %"),
        ("these ranges meet the interval of what was measured", part("meets", promised), ""),
        ("mean width of these ranges", f"{100 * statistics.fmean(widths):.0f} points" if widths else "none", "≤ 20"),
        ("these ranges from zero", share(sum(r["promise"]["low"] <= 0 for r in promised), len(promised)), "≤ 10 %"),
        ("first findings from zero", share(sum(f["low"] <= 0 for f in first), len(first)), "≤ 10 %"),
        ("wrong promises", part("wrong", every), "≤ 2 %"),
        ("findings ≥ 5 % on healthy scripts", f"{len(loud)} on {len(healthy)}", "0"),
        ("healthy scripts with nothing above 1.5 %", share(len(quiet), len(healthy)), ""),
    ]


def said(finding: Row) -> str:
    """A finding as its rule, range and line."""
    place = finding["where"][0] if finding["where"] else None
    at = f" @{Path(place['file']).stem}:{place['line']}" if place else ""
    return f"{finding['rule']} {percent(finding['low'], finding['high'])}{at}"


def fresh_row(row: Row) -> str:
    """One line of the table of faulty scripts."""
    measured, saving = row["measured"], "not measured"
    if measured:
        saving = f"{100 * measured['saving']:.0f} % [{100 * measured['low']:.0f}, {100 * measured['high']:.0f}]"
        saving += f" of {statistics.median(measured['slow_us']) / 1000:.1f} ms"
    line = "first" if row["line_first"] else "any" if row["line_any"] else "**no**"
    named = "first" if row["named_first"] else "yes" if row["named"] else "**no**"
    found = row["failed"] or ", ".join(map(said, row["findings"])) or "nothing"
    cells = [row["name"], str(row["line"]), saving, named, line, pair_table.yes(row["inside"]), found]
    return "| " + " | ".join([*cells, ", ".join(map(said, row["on_fixed"]))]) + " |"


def healthy_row(result: Row) -> str:
    """One line of the table of healthy scripts."""
    advised = result.get("advised", {}).get("slow", {})
    found = [f for f in findings(advised) if (f["high"] or 0.0) >= MATERIAL]
    return f"| {result['name']} | {advised.get('failed') or ', '.join(map(said, found)) or 'nothing'} |"


def line_of(result: Row) -> str:
    """One line for the terminal while measuring."""
    return fresh_row(judged(result)) if result["kind"] == "fresh" else healthy_row(result)


def document(results: list[Row]) -> str:
    """All of it as Markdown."""
    rows = [judged(result) for result in results if result["kind"] == "fresh"]
    healthy = [result for result in results if result["kind"] == "healthy"]
    ready = [result for result in healthy if "metrics" in result.get("advised", {}).get("slow", {})]
    parts = ["| figure | measured | goal |", "|---|---|---|"]
    parts += [f"| {' | '.join(line)} |" for line in figures(rows, ready)]
    parts += [
        "",
        "| script | line | measured saving | named | line named | inside | on slow, ≥ 2 % | on fixed, ≥ 5 % |",
    ]
    parts += ["|---|---|---|---|---|---|---|---|", *map(fresh_row, rows)]
    return "\n".join([*parts, "", "| healthy script | findings ≥ 2 % |", "|---|---|", *map(healthy_row, healthy)])


def main() -> int:
    """The command."""
    args = pairs.options(__doc__, "torch-advisor-fresh").parse_args()
    left = pairs.look_at(cases(), args, line_of)
    print(document(pairs.stored(args.results, cases())))
    if left:
        print(f"{left} scripts were not looked at: run the same command again", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
