"""`advisor try` against the truth: what it measures of a treatment beside what the hand-written fix gives.

    python tests/benchmarks/try_pairs.py                          every pair below, healthy scripts and controls
    python tests/benchmarks/try_pairs.py --only respawned-workers one or more cases (a part of the name is enough)
    python tests/benchmarks/try_pairs.py --table                  only the tables, from the results that there are

Of a pair, slow.py with the treatment is measured against slow.py, and fixed.py against slow.py, by the same machinery.
The gains agree where their intervals overlap. Healthy scripts and controls get changes that change nothing: every win
there is a false one. Each case leaves one JSON line in --results; what is there is not measured again. Measure on a
machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from advisor.gate.ab import end_in_order
from advisor.gate.files import GateError
from advisor.gate.pairs import Side
from advisor.gate.sequential import noise_floor
from advisor.gate.turns import environment
from advisor.trying.candidates import Candidate
from advisor.trying.decide import Design, judge
from advisor.trying.pairing import Measure, layout_of, measurer
from advisor.trying.session import Session
from advisor.trying.treatments import parse, treated

SAMPLES = Path(__file__).parents[2] / "samples"
# Pairs whose fix.py makes a change that a treatment makes as well, so that both should give the same.
PAIRS = {
    "anomaly-detection": "calls:names=torch.autograd.set_detect_anomaly+torch.autograd.detect_anomaly",
    "cache-emptied-each-step": "calls:names=gc.collect+torch.cuda.empty_cache",
    "double-precision": "calls:names=torch.set_default_dtype",
    "full-precision-matmul": "autocast:dtype=bfloat16",
    "garbage-collection": "calls:names=gc.collect",
    "gradients-set-to-zero": "set_to_none",
    "loop-optimizer": "optimizer:fused=True",
    "main-process-loading": "loader:num_workers=2,persistent_workers=True",
    "needless-workers": "loader:num_workers=0",
    "respawned-workers": "loader:persistent_workers=True",
    "single-thread": "threads:count=2",
    "stray-synchronize": "calls:names=torch.cuda.synchronize",
    "thread-oversubscription": "threads:count=2",
    "threads-of-the-cluster": "threads:count=2",
    "unused-parameter-search": "ddp:find_unused_parameters=False",
}
# Changes that change nothing: a variable that no program reads, and a collector that is left as it is.
NOTHING = ("environment:ADVISOR_NOTHING=1", "gc:threshold=700")


def side(script: Path) -> Side:
    """A script as it is, by this interpreter."""
    return Side("base", (sys.executable, str(script)), script.parent, environment(), script.stem)


def session(script: Path, words: Sequence[str], rng: random.Random) -> tuple[dict[str, Any], Measure, Side]:
    """What a session says of these changes."""
    base = side(script)
    layout, _ = layout_of(base)
    measure = measurer(layout, rng)
    one = Session(base, measure, 3600.0, lambda text: print(f"  {text}", file=sys.stderr), began=time.monotonic())
    return asdict(one.run([Candidate(text, (parse(text),)) for text in words])), measure, base


def truth(measure: Measure, slow: Side, fixed: Side, pairs: int) -> dict[str, float]:
    """The gain of the hand-written fix and its interval."""
    ratios = [measure(treated(slow, ()), treated(fixed, ())).pair.ratio for _ in range(pairs)]
    judged = judge(ratios, Design(1, looks=(pairs,)), noise_floor(()))
    return {"gain": judged.gain, "low": judged.low, "high": judged.high}


def cases() -> dict[str, tuple[Path, tuple[str, ...], Path | None]]:
    """Name -> (script, changes to try, the hand-written fix)."""
    found: dict[str, tuple[Path, tuple[str, ...], Path | None]] = {
        name: (SAMPLES / "pairs" / name / "slow.py", (words,), SAMPLES / "pairs" / name / "fixed.py")
        for name, words in PAIRS.items()
    }
    for path in sorted((SAMPLES / "healthy").glob("*.py")):
        found[f"healthy/{path.stem}"] = (path, NOTHING, None)
    for path in sorted((SAMPLES / "controls").glob("*/plain.py")):
        found[f"controls/{path.parent.name}"] = (path, NOTHING, None)
    return found


def measured(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """One case; a script that cannot be measured says why."""
    script, words, fixed = cases()[name]
    result: dict[str, Any] = {"name": name}
    try:
        result["tried"], measure, base = session(script, words, random.Random(name))
        if fixed is not None:
            result["truth"] = truth(measure, base, side(fixed), args.pairs)
    except GateError as failure:
        result["failed"] = str(failure)
    return result


def table(results: Sequence[dict[str, Any]]) -> None:
    """What came of the cases, and how many agree."""
    agree, compared, false_wins, changes = 0, 0, 0, 0
    for one in results:
        if "failed" in one:
            print(f"| {one['name']} | {one['failed']} | | | |")
            continue
        for trial in one["tried"]["trials"]:
            if "truth" not in one:
                changes, false_wins = changes + 1, false_wins + (trial["verdict"] == "faster")
            elif trial["gain"] is not None:
                compared += 1
                agree += trial["low"] <= one["truth"]["high"] and one["truth"]["low"] <= trial["high"]
            cells = (one["name"], trial["title"], trial["verdict"], span(trial), span(one.get("truth")))
            print(f"| {' | '.join(cells)} |")
    print(f"{agree} of {compared} gains agree with the hand-written fix")
    print(f"{false_wins} false wins of {changes} changes that change nothing")


def span(of: dict[str, Any] | None) -> str:
    """A gain with its interval."""
    if not of or of.get("gain") is None:
        return ""
    return f"{100 * of['gain']:.0f} % [{100 * of['low']:.0f}, {100 * of['high']:.0f}]"


def main() -> None:
    """Measures what is missing, then prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--results", type=Path, default=Path("try-pairs.jsonl"))
    parser.add_argument("--pairs", type=int, default=4, help="pairs of the hand-written fix")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    end_in_order()
    known = [json.loads(line) for line in args.results.read_text().splitlines()] if args.results.exists() else []
    for name in cases() if not args.table else ():
        wanted = not args.only or any(part in name for part in args.only)
        if wanted and all(one["name"] != name for one in known):
            print(name, file=sys.stderr)
            known.append(measured(name, args))
            with args.results.open("a") as file:
                file.write(json.dumps(known[-1]) + "\n")
    table(known)


if __name__ == "__main__":
    main()
