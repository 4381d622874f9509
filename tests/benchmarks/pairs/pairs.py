"""Promised against measured, over every seeded pair, healthy script and negative control.

    python tests/benchmarks/pairs/pairs.py                     everything that has no result yet, then the table
    python tests/benchmarks/pairs/pairs.py --only small-batch  one or more cases (a part of the name is enough)
    python tests/benchmarks/pairs/pairs.py --minutes 5         stop after about 5 minutes; the next call goes on
    python tests/benchmarks/pairs/pairs.py --table             only the table, from the results that there are

Each case leaves one JSON in --results; what is there already is not measured again (remove a file, or name it with
--only and --again). Scripts run one at a time, slow and fixed in turns, in processes of their own, without a profiler;
then `advisor run` looks at each. Measure on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pair_measure
import pair_table

SAMPLES = Path(__file__).parents[3] / "samples"
# Five pairs: the fewest for which the factor of a two-sided 95 % interval (Student's t) is below three.
REPEATS = 5
MARKER = "<!-- measured -->"  # everything behind it in the page is replaced


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to measure. scripts: role -> file; facts: its entry of faults.toml, or whether it is held out."""

    name: str
    kind: str  # pair | control | healthy
    scripts: dict[str, Path]
    facts: dict[str, Any]


def cases() -> list[Case]:
    """Every case of the samples folder, by name."""
    faults = tomllib.loads((SAMPLES / "pairs" / "faults.toml").read_text("utf-8"))
    pairs = [
        Case(name, "pair", {role: SAMPLES / "pairs" / name / f"{role}.py" for role in ("slow", "fixed")}, facts)
        for name, facts in faults.items()
    ]
    kept = {kind: set(names) for kind, names in tomllib.loads((SAMPLES / "held_out.toml").read_text("utf-8")).items()}
    controls = [
        Case(
            folder.name,
            "control",
            {"slow": folder / "plain.py", "fixed": folder / "popular_fix.py"},
            {"held_out": folder.name in kept["controls"]},
        )
        for folder in sorted((SAMPLES / "controls").iterdir())
        if folder.is_dir()
    ]
    healthy = [
        Case(path.stem, "healthy", {"slow": path}, {"held_out": path.stem in kept["healthy"]})
        for path in sorted((SAMPLES / "healthy").glob("*.py"))
    ]
    return pairs + controls + healthy


def complete(case: Case, result: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """The case's result with what was missing (or is asked for again) measured."""
    sources = pair_measure.fingerprint(case.scripts)
    if result.get("sources") != sources:
        result = {"name": case.name, "kind": case.kind, "facts": case.facts, "sources": sources}
    result["facts"] = case.facts
    launcher = case.facts.get("launcher", "")
    if "measure" in args.stages and case.kind != "healthy" and (args.again or "measured" not in result):
        result["measured"] = pair_measure.measure(
            (case.scripts["slow"], case.scripts["fixed"]),
            args.repeats,
            launcher,
            float(case.facts.get("work", 1)),
            pair_measure.run_us if case.facts.get("over") == "run" else pair_measure.step_us,
        )
    if "advise" in args.stages and (args.again or "advised" not in result):
        kept = {role: args.results / "profiles" / f"{case.kind}-{case.name}-{role}" for role in case.scripts}
        if args.again and not args.same_profiles:
            for folder in kept.values():
                shutil.rmtree(folder, ignore_errors=True)
        result["advised"] = {
            role: pair_measure.advise(path, launcher, kept[role].absolute()) for role, path in case.scripts.items()
        }
    return result


def stored(folder: Path, known: list[Case]) -> list[dict[str, Any]]:
    """Every result that there is, judged by what the cases declare now."""
    results = []
    for case in known:
        file = folder / f"{case.kind}-{case.name}.json"
        if file.exists():
            results.append(json.loads(file.read_text("utf-8")) | {"facts": case.facts})
    return results


def options(description: str | None, folder: str) -> argparse.ArgumentParser:
    """What every such benchmark can be asked."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path.home() / ".cache" / folder)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--again", action="store_true", help="measure again what has a result")
    parser.add_argument("--same-profiles", action="store_true", help="--again asks the rules about the profiles kept")
    parser.add_argument("--stages", nargs="+", default=["measure", "advise"], choices=["measure", "advise"])
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--minutes", type=float, default=0, help="start no further case after this time")
    parser.add_argument("--table", action="store_true", help="print the table only")
    return parser


def look_at(known: list[Case], args: argparse.Namespace, line_of: Callable[[dict[str, Any]], str]) -> int:
    """Completes the results of the cases that are asked for; how many there was no time for."""
    args.results.mkdir(parents=True, exist_ok=True)
    started, left = time.monotonic(), 0
    for case in known:
        file = args.results / f"{case.kind}-{case.name}.json"
        result = json.loads(file.read_text("utf-8")) if file.exists() else {}
        if args.table or (args.only and not any(part in case.name for part in args.only)):
            continue
        if args.minutes and time.monotonic() - started > 60 * args.minutes:
            left += 1
            continue
        try:
            after = complete(case, dict(result), args)
        except (RuntimeError, subprocess.TimeoutExpired) as failure:
            print(f"{case.name}: left out, {failure}", file=sys.stderr, flush=True)  # the others are still measured
            continue
        if after != result:
            file.write_text(json.dumps(after, indent=1), "utf-8")
            print(line_of(after), file=sys.stderr, flush=True)
    return left


def main() -> int:
    """The command."""
    parser = options(__doc__, "torch-advisor-pairs")
    parser.add_argument("--page", type=Path, help="also write the table into this page, behind its marker")
    args = parser.parse_args()
    left = look_at(cases(), args, pair_table.line_of)
    document = pair_table.document(stored(args.results, cases()))
    print(document)
    if args.page:
        head, marker, _ = args.page.read_text("utf-8").partition(MARKER)
        args.page.write_text(f"{head}{marker or MARKER}\n\n{document}\n", "utf-8")
    if left:
        print(f"{left} cases were not looked at: run the same command again", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
