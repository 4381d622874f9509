"""The table of `measured_pairs.py`: what was promised beside what was measured, from stored results alone.

Counted are pairs whose measured interval lies above zero. A promise is that of the declared rules, as a share of the
report's own step (`pair_table.best`).
"""

from __future__ import annotations

import statistics
from typing import Any

import fresh
import pair_table
from pair_table import MATERIAL, PROMISE, findings, percent, share

Row = dict[str, Any]
PAIR_HEAD = (
    "| pair | slow, ms | fixed, ms | measured saving [95 %] | promised | inside | named | line | step as reported, ms "
    "| on slow, ≥ 2 % | on fixed, ≥ 5 % |"
)


def judged(result: Row) -> Row:
    """One pair's row: that of `pair_table`, with what came first and what is said of fixed.py."""
    row = pair_table.judged(result, pair_table.known_rules([result]))
    advised = result.get("advised", {})
    loud = [f for f in findings(advised.get("slow", {})) if (f["high"] or 0.0) >= MATERIAL]
    row["loud"] = loud
    row["first"] = bool(loud) and loud[0]["rule"] in row["rules"]
    row["on_fixed"] = [f for f in findings(advised.get("fixed", {})) if (f["high"] or 0.0) >= PROMISE]
    row["reported_us"] = (advised.get("slow", {}).get("metrics") or {}).get("step_time_us")
    row["compared"] = row["counts"] and row["asked"] and not row["failed"]
    return row


def pair_row(row: Row) -> str:
    """One line of the table of pairs."""
    times, saving = ["", ""], "not measured"
    if measured := row["measured"]:
        times = [f"{statistics.median(measured[key]) / 1e3:.2f}" for key in ("slow_us", "fixed_us")]
        saving = f"{100 * measured['saving']:.0f} % [{100 * measured['low']:.0f}, {100 * measured['high']:.0f}]"
        saving += "" if row["counts"] else " (does not count)"
    found = row["found"]
    promise = f"{found['rule']} {percent(found['low'], found['high'])}" if found else ""
    named = "first" if row["first"] else "yes" if found else "**no**"
    reported = f"{row['reported_us'] / 1e3:.2f}" if row["reported_us"] else ""
    if row["failed"] or not row["asked"]:
        promise, named = "no report" if row["failed"] else "not asked yet", ""
    cells = [row["name"], *times, saving, promise, pair_table.yes(row["inside"]), named, pair_table.yes(row["line"])]
    said = [", ".join(map(fresh.said, row[key])) for key in ("loud", "on_fixed")]
    return "| " + " | ".join([*cells, reported, *said]) + " |"


def healthy_findings(result: Row) -> list[Row]:
    """What is said of a healthy script, 5 % of its step or more."""
    return [f for f in findings(result.get("advised", {}).get("slow", {})) if (f["high"] or 0.0) >= PROMISE]


def healthy_row(result: Row) -> str:
    """One line of the table of healthy scripts."""
    advised = result.get("advised", {}).get("slow", {})
    step_us = (advised.get("metrics") or {}).get("step_time_us")
    said = ", ".join(map(fresh.said, healthy_findings(result))) or "nothing"
    cells = [result["name"], f"{step_us / 1e3:.2f}" if step_us else "", "no report" if advised.get("failed") else said]
    return "| " + " | ".join(cells) + " |"


def figures(rows: list[Row], healthy: list[Row]) -> list[tuple[str, str]]:
    """(figure, value) over the pairs that count, and the healthy scripts."""
    counted = [row for row in rows if row["compared"]]
    promised = [row for row in counted if row["inside"] is not None]
    lined = [row for row in counted if row["line"] is not None]
    asked = [row for row in rows if row["asked"] and not row["failed"]]
    widths = [row["found"]["high"] - row["found"]["low"] for row in promised]
    told = [result for result in healthy if "metrics" in result.get("advised", {}).get("slow", {})]

    def points(values: list[float]) -> str:
        return f"{100 * statistics.median(values):.1f} points" if values else "none to count"

    return [
        ("pairs measured / whose fault shows here", f"{len(rows)} / {sum(row['counts'] for row in rows)}"),
        ("fault named", share(sum(bool(row["found"]) for row in counted), len(counted))),
        ("fault named first", share(sum(row["first"] for row in counted), len(counted))),
        ("right line", share(sum(row["line"] for row in lined), len(lined))),
        ("measured inside the promised range", share(sum(row["inside"] for row in promised), len(promised))),
        ("median width of these ranges", points(widths)),
        ("median distance from their middle", points([row["error"] for row in promised])),
        ("wrong promises (≥ 5 %, nothing saved)", share(sum(r.get("wrong", False) for r in rows), len(rows))),
        ("fixed.py with findings ≥ 5 %", share(sum(bool(row["on_fixed"]) for row in asked), len(asked))),
        ("healthy scripts with findings ≥ 5 %", share(sum(bool(healthy_findings(r)) for r in told), len(told))),
    ]


def line_of(result: Row) -> str:
    """One line for the terminal while measuring."""
    return pair_row(judged(result)) if result["kind"] == "pair" else healthy_row(result)


def document(results: list[Row]) -> str:
    """All of it as Markdown."""
    rows = [judged(result) for result in results if result["kind"] == "pair"]
    healthy = [result for result in results if result["kind"] == "healthy"]
    parts = ["| figure | value |", "|---|---|"]
    parts += [f"| {name} | {value} |" for name, value in figures(rows, healthy)]
    parts += ["", PAIR_HEAD, "|---|---|---|---|---|---|---|---|---|---|---|", *map(pair_row, rows)]
    parts += ["", "| healthy script | step as reported, ms | findings ≥ 5 % |", "|---|---|---|"]
    return "\n".join([*parts, *map(healthy_row, healthy)])
