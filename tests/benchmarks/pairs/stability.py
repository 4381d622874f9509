"""The same answer twice: sample scripts run several times each, and how far their findings agree.

Run on a machine that does nothing else (about 20 s a run; interrupt it at will, what has run is kept):

    python tests/benchmarks/pairs/stability.py                        20 scripts, 10 runs each
    python tests/benchmarks/pairs/stability.py --scripts 2 --runs 3   a short look
    python tests/benchmarks/pairs/stability.py --table                what is there already

Scripts are drawn with a seed from samples/ (the slow scripts of pairs, plain controls, healthy ones), those that need
a launcher left out; every round runs each of them once, so that a change of the machine meets all alike. Counted are
findings whose high end is 5 % of the step or more, told apart by rule and first line. Two runs agree where they have
the same ones.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import pair_measure
import pairs

MATERIAL = 0.05
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Run:
    """What one run found: (rule, place) -> (low, high) share of its step, and its step, µs."""

    findings: dict[Key, tuple[float, float]]
    step_us: float

    @property
    def material(self) -> frozenset[Key]:
        """The findings that count."""
        return frozenset(key for key, (_, high) in self.findings.items() if high >= MATERIAL)


def drawn(seed: int, number: int) -> list[pairs.Case]:
    """So many cases, the same ones for the same seed."""
    alone = [case for case in pairs.cases() if not case.facts.get("launcher")]
    return sorted(random.Random(seed).sample(alone, min(number, len(alone))), key=lambda case: case.name)


def of_report(report: dict[str, Any]) -> Run | None:
    """The run behind what `pair_measure.advise` gives; None where it failed."""
    step_us = report.get("metrics", {}).get("step_time_us")
    if not step_us:
        return None
    found: dict[Key, tuple[float, float]] = {}
    for outcome in report["outcomes"]:
        for finding in outcome["findings"]:
            places, saving = finding["where"], finding["saving"]
            where = f"{Path(places[0]['file']).name}:{places[0]['line']}" if places else ""
            if saving is not None and finding["recoverable"]:
                found.setdefault((outcome["rule"], where), (saving["low_us"] / step_us, saving["high_us"] / step_us))
    return Run(found, step_us)


def agreement(runs: Sequence[Run]) -> tuple[int, int]:
    """(pairs of runs with the same material findings, pairs)."""
    both = list(combinations(runs, 2))
    return sum(one.material == other.material for one, other in both), len(both)


def moved(runs: Sequence[Run]) -> Iterator[tuple[float, float]]:
    """For each material finding of each pair of runs that both have: (how far its ends move at most, mean width)."""
    for one, other in combinations(runs, 2):
        for key in one.material & other.material:
            (low, high), (low_, high_) = one.findings[key], other.findings[key]
            yield max(abs(low - low_), abs(high - high_)), ((high - low) + (high_ - low_)) / 2


def unsteady(runs: Sequence[Run]) -> Iterator[str]:
    """Findings that some runs have and others have not, with how often and at what size."""
    keys = sorted(frozenset().union(*(run.material for run in runs)))
    for key in keys:
        seen = sum(key in run.material for run in runs)
        if seen < len(runs):
            highs = [100 * run.findings[key][1] for run in runs if key in run.findings]
            sizes = f"high end {min(highs):.0f} to {max(highs):.0f} %"
            yield f"{' '.join(filter(None, key))}: {seen} of {len(runs)} runs, {sizes}"


def table(found: dict[str, list[Run]]) -> Iterator[str]:
    """The lines that are printed."""
    yield "| script | runs | steps, ms | pairs of runs that agree | ends move less than the width | not in every run |"
    yield "|---|---|---|---|---|---|"
    same = of = within = moves = 0
    for name, runs in found.items():
        agree, number = agreement(runs)
        ends = list(moved(runs))
        less = sum(far < width for far, width in ends)
        same, of, within, moves = same + agree, of + number, within + less, moves + len(ends)
        steps = [run.step_us / 1e3 for run in runs]
        span = f"{min(steps):.3g} to {max(steps):.3g}, median {median(steps):.3g}"
        cells = (
            name,
            str(len(runs)),
            span,
            f"{agree} of {number}",
            f"{less} of {len(ends)}",
            "; ".join(unsteady(runs)),
        )
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield f"the set of findings of {MATERIAL:.0%} and more agrees in {_share(same, of)} of pairs of runs (goal: 95 %)"
    yield f"both ends of a range move by less than its width in {_share(within, moves)} of pairs that both have it"


def _share(number: int, of: int) -> str:
    return f"{number} of {of} ({100 * number / of:.0f} %)" if of else "none"


def stored(folder: Path, names: Sequence[str]) -> dict[str, list[Run]]:
    """The runs that are there of these scripts, with two or more."""
    found = {}
    for name in names:
        reports = [json.loads(file.read_text("utf-8")) for file in sorted(folder.glob(f"{name}-*.json"))]
        runs = [run for report in reports if (run := of_report(report))]
        if len(runs) > 1:
            found[name] = runs
    return found


def main() -> int:
    """Runs what is missing, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path.home() / ".cache" / "torch-advisor-stability")
    parser.add_argument("--scripts", type=int, default=20)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=20261123)
    parser.add_argument("--table", action="store_true", help="print the table only")
    args = parser.parse_args()
    chosen = drawn(args.seed, args.scripts)
    args.results.mkdir(parents=True, exist_ok=True)
    for number in range(0 if args.table else args.runs):
        for case in chosen:
            file = args.results / f"{case.name}-{number}.json"
            if not file.exists():
                profile = args.results / "profiles" / f"{case.name}-{number}"
                report = pair_measure.advise(case.scripts["slow"], "", profile)
                file.write_text(json.dumps(report), encoding="utf-8")
                print(f"{case.name}, run {number + 1}: {report.get('failed') or 'done'}", file=sys.stderr, flush=True)
    print("\n".join(table(stored(args.results, [case.name for case in chosen]))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
