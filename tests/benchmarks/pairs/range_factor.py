"""By how much predictions were off when they were checked: the constants of advisor/analyses/costs/checked_ranges.py.

    python tests/benchmarks/pairs/range_factor.py FOLDER …          each a folder of results of fresh.py or pairs.py
    python tests/benchmarks/pairs/range_factor.py FOLDER … --json FILE      keeps what was predicted and measured

Rules that have changed since are asked about the kept recordings again, and their ranges are taken as the rules give
them. Counted are ranges at the fault's declared line whose script's saving was measured to lie above zero. What is
measured lies above the middle of a range by a factor of the odds, in the median. For each weight of what a change
leaves open: the factor within which so many measured savings lie of that, and how many do if each folder is judged by
both factors of the others.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fresh
from msgspec import Struct
from pair_table import best, declared_lines

WEIGHTS, INSIDE = (0.0, 1.0, 1.5, 2.0, 2.5, 3.0), (0.75, 0.8)
_AS_RULES_SAY = (
    "from advisor.analyses.costs import checked_ranges; "
    "checked_ranges.settled = lambda saving, *given, **named: saving; "
    "from advisor.__main__ import main; main()"
)


class Checked(Struct, frozen=True):
    """One saving as a share of the step: the ends of the rule's range, and what was measured."""

    folder: str
    name: str
    rule: str
    low: float
    high: float
    measured: float

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    def open(self, weight: float) -> float:
        """How many times as far out the ends are as those of a change that leaves nothing open."""
        return math.sqrt(1 + (weight * (self.high - self.low) / 2 / self.middle) ** 2)

    @property
    def above(self) -> float:
        """By how much the measured odds lie above those of the middle, log."""
        return logit(self.measured) - logit(self.middle)

    def off(self, weight: float, above: float) -> float:
        """By how much the odds were off from so much above the middle, log; in units of `open`."""
        return abs(self.above - above) / self.open(weight)

    def width(self, weight: float, off: float, above: float) -> float:
        """Of the range with ends so far out."""
        at, far = logit(self.middle) + above, off * self.open(weight)
        return share(at + far) - share(at - far)


def logit(part: float) -> float:
    """The logarithm of the odds of a share."""
    return math.log(part / (1 - part))


def share(log_odds: float) -> float:
    """The share with these odds."""
    return 1 / (1 + math.exp(-log_odds))


def raw_report(folder: Path) -> dict[str, Any]:
    """The report of a recorded run with the ranges that rules give; its step time is where pair_table looks for it."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "report.json"
        words = [sys.executable, "-c", _AS_RULES_SAY, "analyze", "--quiet", "--output", str(out), str(folder)]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        report: dict[str, Any] = json.loads(out.read_text("utf-8"))
    return report | {"metrics": {"step_time_us": report["metrics"]["step_time_us"]["value"]}}


def checked(results: Path) -> Iterator[Checked]:
    """What a folder of results tells."""
    for file in sorted(results.glob("*.json")):
        result = json.loads(file.read_text("utf-8"))
        recorded, measured = results / "profiles" / f"{file.stem}-slow", result.get("measured")
        if not recorded.is_dir() or not measured or measured["low"] <= 0:
            continue
        report = raw_report(recorded)
        if result["kind"] == "fresh":
            line = fresh.fault_line(result["name"], result["facts"]["line"])
            promise = fresh.promise_at(fresh.findings(report), line)
        else:
            promise = best(report, result["facts"]["rules"], declared_lines(result))
        if promise and promise["low"] and promise["low"] > 0.005:  # from zero: only an upper bound
            ends = promise["low"], promise["high"]
            yield Checked(results.parent.name, result["name"], promise["rule"], *ends, measured["saving"])


def kept_in(file: Path) -> list[Checked]:
    """What `--json` kept."""
    return [Checked(**row) for row in json.loads(file.read_text("utf-8"))]


def typically_above(rows: list[Checked]) -> float:
    """By how much measured odds lie above those of the middle, log, in the median."""
    return statistics.median(row.above for row in rows)


def quantile(rows: list[Checked], weight: float, part: float) -> float:
    """How far out the ends are of ranges that hold this part of what was measured."""
    above = typically_above(rows)
    return sorted(row.off(weight, above) for row in rows)[min(int(part * len(rows)), len(rows) - 1)]


def judged(rows: list[Checked], others: list[Checked], weight: float, part: float) -> list[tuple[bool, float]]:
    """Whether each saving lies inside the range made by what others tell, and its width."""
    off, above = quantile(others, weight, part), typically_above(others)
    return [(row.off(weight, above) <= off, row.width(weight, off, above)) for row in rows]


def words(found: list[tuple[bool, float]]) -> str:
    """'80 % | 19.5'"""
    inside, width = (statistics.fmean(column) for column in zip(*found, strict=True))
    return f"{100 * inside:.0f} % | {100 * width:.1f}"


def table(rows: list[Checked]) -> str:
    """All of it as Markdown."""
    inside = statistics.fmean(row.low <= row.measured <= row.high for row in rows)
    width = statistics.fmean(row.high - row.low for row in rows)
    lines = [
        f"{len(rows)} ranges; as the rules give them {100 * inside:.0f} % inside, {100 * width:.1f} points wide; "
        f"measured odds {math.exp(typically_above(rows)):.2f} times those of the middle in the median\n",
        "| weight | inside, wanted | factor | inside | width | by the other folders | width |",
        "|" + "---|" * 7,
    ]
    folders = sorted({row.folder for row in rows})
    for weight in WEIGHTS:
        for part in INSIDE:
            crossed = [
                one
                for folder in folders
                for one in judged(
                    [row for row in rows if row.folder == folder],
                    [row for row in rows if row.folder != folder] or rows,
                    weight,
                    part,
                )
            ]
            factor = math.exp(quantile(rows, weight, part))
            own = words(judged(rows, rows, weight, part))
            lines.append(f"| {weight} | {100 * part:.0f} % | {factor:.2f} | {own} | {words(crossed)} |")
    return "\n".join(lines)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", help="of results, or files that --json wrote")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = [row for one in args.folders for row in (kept_in(one) if one.is_file() else checked(one))]
    if args.json:
        kept = [{name: getattr(row, name) for name in row.__struct_fields__} for row in rows]
        args.json.write_text(json.dumps(kept, indent=1), "utf-8")
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
