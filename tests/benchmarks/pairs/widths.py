"""What makes the ranges of recorded runs as wide as they are.

    python tests/benchmarks/pairs/widths.py FOLDER …   a line for each finding with a range of 2 points and more
    python tests/benchmarks/pairs/widths.py FOLDER … --json FILE   the same rows, to compare later: --before FILE

Each folder is one of `advisor run`. Every width is divided among what the run did not know (`Saving.width_us`: how far
steps repeat, which work the profiler slowed, what a replacement costs) and the rest, the change itself. Points are
shares of the step. Rules that have changed since are asked about the same recordings again, so that two tables differ
in nothing but the rules.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TERMS = ("steps", "profiler", "instead")
LEAST = 0.02
Row = dict[str, Any]


def report_of(folder: Path) -> Row:
    """The report of a recorded run by the rules as they are now."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "report.json"
        words = [sys.executable, "-m", "advisor", "analyze", "--quiet", "--output", str(out), str(folder)]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        report: Row = json.loads(out.read_text("utf-8"))
    return report


def step_us(report: Row) -> float:
    """The step that savings are a share of."""
    times = report["steps"]["unprofiled_us"] or report["steps"]["profiled_us"]
    return float(times.get("median") or times.get("mean") or report["steps"]["profiled_us"]["median"])


def rows_of(name: str, report: Row) -> list[Row]:
    """The findings of a report that have a range, largest first."""
    step, rows = step_us(report), []
    for outcome in report["outcomes"]:
        for finding in outcome.get("findings", []):
            saving = finding.get("saving")
            if not saving or saving["high_us"] < LEAST * step:
                continue
            terms = {term: saving.get("width_us", {}).get(term, 0.0) / step for term in TERMS}
            low, high = saving["low_us"] / step, saving["high_us"] / step
            terms["change"] = high - low - sum(terms.values())
            rows.append({"script": name, "rule": outcome["rule"], "low": low, "high": high, **terms})
    return sorted(rows, key=lambda row: -row["high"])


def said(row: Row | None) -> str:
    """'5-36', '' where there is none."""
    return f"{100 * row['low']:.0f}-{100 * row['high']:.0f}" if row else ""


def table(rows: list[Row], before: list[Row]) -> str:
    """All of it as Markdown, with the ranges that other rules gave beside them."""
    former = {(row["script"], row["rule"], row["number"]): row for row in before}
    now = {(row["script"], row["rule"], row["number"]): row for row in rows}
    lines = ["| script | rule | before | now | width | steps | profiler | instead | the change |"]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for key in dict.fromkeys([*now, *former]):
        row = now.get(key)
        terms = [f"{100 * row[term]:.0f}" for term in (*TERMS, "change")] if row else [""] * 4
        width = f"{100 * (row['high'] - row['low']):.0f}" if row else ""
        lines.append(f"| {key[0]} | {key[1]} | {said(former.get(key))} | {said(row)} | {' | '.join([width, *terms])} |")
    for name, some in (("before", before), ("now", rows)):
        wide = [row["high"] - row["low"] for row in some]
        if wide:
            zero = sum(row["low"] <= 0 for row in some)
            lines.append(f"\n{name}: {len(some)} ranges, {100 * statistics.fmean(wide):.0f} points, {zero} from zero")
    return "\n".join(lines)


def numbered(rows: list[Row]) -> list[Row]:
    """The rows with their number among those of one rule on one script."""
    seen: dict[tuple[str, str], int] = {}
    for row in rows:
        key = (row["script"], row["rule"])
        row["number"] = seen[key] = seen.get(key, 0) + 1
    return rows


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--before", type=Path)
    args = parser.parse_args()
    rows = numbered([row for folder in args.folders for row in rows_of(folder.name, report_of(folder))])
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1), "utf-8")
    print(table(rows, json.loads(args.before.read_text("utf-8")) if args.before else []))
    return 0


if __name__ == "__main__":
    sys.exit(main())
