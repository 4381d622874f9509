"""By how much predictions were off when they were checked: the two constants of advisor/engine/checked_ranges.py.

    python tests/benchmarks/pairs/range_factor.py FOLDER …          each a folder of results of fresh.py or pairs.py
    python tests/benchmarks/pairs/range_factor.py FOLDER … --json FILE      keeps what was predicted and measured

Rules that have changed since are asked about the kept recordings again, and their ranges are taken as the rules give
them. Counted are ranges at the fault's declared line whose script's saving was measured to lie above zero. For each
weight of what a change leaves open: the factor within which so many measured savings lie, and how many do if each
folder is judged by the factor of the others.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fresh
from msgspec import Struct
from pair_table import best, declared_lines

WEIGHTS, INSIDE = (0.0, 1.0, 1.5, 2.0, 2.5, 3.0), (0.75, 0.8)
_AS_RULES_SAY = (
    "from advisor.engine import checked_ranges; checked_ranges.settled = lambda saving, *given, **named: saving; "
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

    def off(self, weight: float) -> float:
        """By how much the odds were off, log; in units of that."""
        return abs(logit(self.measured) - logit(self.middle)) / self.open(weight)

    def width(self, weight: float, off: float) -> float:
        """Of the range with ends so far out."""
        far = off * self.open(weight)
        return share(logit(self.middle) + far) - share(logit(self.middle) - far)


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


def quantile(rows: list[Checked], weight: float, part: float) -> float:
    """How far out the ends are of ranges that hold this part of what was measured."""
    return sorted(row.off(weight) for row in rows)[min(int(part * len(rows)), len(rows) - 1)]


def judged_by_others(rows: list[Checked], weight: float, part: float) -> tuple[float, float]:
    """Share inside and mean width where each folder's ranges are made by the other folders' quantile."""
    held, wide = 0, []
    for folder in {row.folder for row in rows}:
        off = quantile([row for row in rows if row.folder != folder], weight, part)
        own = [row for row in rows if row.folder == folder]
        held += sum(row.off(weight) <= off for row in own)
        wide += [row.width(weight, off) for row in own]
    return held / len(rows), statistics.fmean(wide)


def table(rows: list[Checked]) -> str:
    """All of it as Markdown."""
    mean: Callable[[Any], float] = statistics.fmean
    inside = mean(row.low <= row.measured <= row.high for row in rows)
    width = mean(row.high - row.low for row in rows)
    lines = [
        f"{len(rows)} ranges; as the rules give them {100 * inside:.0f} % inside, {100 * width:.1f} points wide",
        "",
    ]
    lines += ["| weight | inside, wanted | factor | inside | width | by the other folders | width |", "|" + "---|" * 7]
    for weight in WEIGHTS:
        for part in INSIDE:
            off = quantile(rows, weight, part)
            held = mean(row.off(weight) <= off for row in rows)
            wide = mean(row.width(weight, off) for row in rows)
            others, others_wide = judged_by_others(rows, weight, part)
            lines.append(
                f"| {weight} | {100 * part:.0f} % | {math.exp(off):.2f} | {100 * held:.0f} % | {100 * wide:.1f} "
                f"| {100 * others:.0f} % | {100 * others_wide:.1f} |"
            )
    return "\n".join(lines)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = [row for folder in args.folders for row in checked(folder)]
    if args.json:
        kept = [{name: getattr(row, name) for name in row.__struct_fields__} for row in rows]
        args.json.write_text(json.dumps(kept, indent=1), "utf-8")
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
