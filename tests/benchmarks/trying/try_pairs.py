"""`advisor try` against the truth: what it measures of a treatment beside what the hand-written fix gives.

    python tests/benchmarks/trying/try_pairs.py                  every case below
    python tests/benchmarks/trying/try_pairs.py --only respawned one or more cases (a part of the name is enough)
    python tests/benchmarks/trying/try_pairs.py --seed 1 --minutes 45 in a random order; none begins after that time
    python tests/benchmarks/trying/try_pairs.py --labels         only what is said of the losses: no load changes that
    python tests/benchmarks/trying/try_pairs.py --table          only the tables, from the results that there are

Of a pair, slow.py with the treatment (or with the hand-written fix as a patch) is measured against slow.py, and
fixed.py against slow.py, by the same machinery. The gains agree where their intervals overlap. Healthy scripts and
controls get changes that change nothing: every win there is a false one. What is said of the losses must be what the
change does by its meaning: see `right`. Each case leaves one JSON line in --results, with the load of the machine at
its begin and end; what is there is not measured again. Measure on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import difflib
import json
import math
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from advisor.errors import FAILED
from advisor.gate import undo
from advisor.gate.ab import end_in_order
from advisor.gate.files import GateError
from advisor.gate.pairs import Side
from advisor.gate.sequential import noise_floor
from advisor.gate.turns import EndedError, Runner, environment
from advisor.model import Treatment
from advisor.trying import numbers
from advisor.trying.candidates import Candidate
from advisor.trying.decide import Design, judge
from advisor.trying.numbers import Band
from advisor.trying.pairing import WARMUP, Measure, layout_of, measurer
from advisor.trying.patched import Mirrors, scratch
from advisor.trying.session import Session
from advisor.trying.treatments import parse, treated

SAMPLES = Path(__file__).parents[3] / "samples"
# Pairs whose fixed.py makes a change that a treatment makes as well, so that both should give the same.
PAIRS = {
    "accumulation-without-no-sync": "no_sync",
    "anomaly-detection": "calls:names=torch.autograd.set_detect_anomaly+torch.autograd.detect_anomaly",
    "cache-emptied-each-step": "calls:names=gc.collect+torch.cuda.empty_cache",
    "debugging-left-on": "calls:names=torch.autograd.detect_anomaly",
    "double-precision": "calls:names=torch.set_default_dtype",
    "frequent-checkpoints": "interval:name=torch.save,every=15",
    "full-precision-matmul": "autocast:dtype=bfloat16",
    "garbage-collection": "calls:names=gc.collect",
    "gradients-set-to-zero": "set_to_none",
    "history-rewritten": "interval:name=History.save,every=50",
    "loop-optimizer": "optimizer:fused=True",
    "main-process-loading": "loader:num_workers=2,persistent_workers=True",
    "needless-workers": "loader:num_workers=0",
    "respawned-workers": "loader:persistent_workers=True",
    "single-thread": "threads:count=2",
    "small-batch": "batch:size=32",
    "stray-synchronize": "calls:names=torch.cuda.synchronize",
    "thread-oversubscription": "threads:count=2",
    "threads-of-the-cluster": "threads:count=2",
    "tissue-tiles-in-main-process": "loader:num_workers=2",
    "unused-parameter-search": "ddp:find_unused_parameters=False",
    "views-in-full-precision": "autocast:dtype=bfloat16",
}
# Pairs whose hand-written fix is tried as a patch.
PATCHED = (
    "item-in-loop",
    "kept-graphs",
    "mask-rebuilt",
    "needless-gradients",
    "second-forward",
    "similarity-by-broadcasting",
)
# Healthy scripts with a text that is replaced, which changes their training.
CHANGED = {
    "tabular_mlp": ("lr=1e-3", "lr=1e-1"),
    "tiny_gpt": ("lr=1e-3", "lr=1e-1"),
    "variational_autoencoder": ("lr=1e-3", "lr=1e-1"),
    "vision_transformer": ("lr=1e-3", "lr=1e-1"),
}
# Pairs whose fix rounds differently, or draws other random numbers (augmentation in workers).
ROUNDED = (
    "accumulation-without-no-sync",
    "double-precision",
    "full-precision-matmul",
    "loop-optimizer",
    "main-process-loading",
    "respawned-workers",
    "similarity-by-broadcasting",
    "single-thread",
    "thread-oversubscription",
    "threads-of-the-cluster",
    "tissue-tiles-in-main-process",
    "views-in-full-precision",
)
# Steps behind the warm-up whose losses are compared where nothing is timed.
_LABEL_STEPS = 50
# Scripts that are started by a launcher of two ranks.
RANKS = ("accumulation-without-no-sync", "unused-parameter-search")
# Changes that change nothing, one for each script in turn: a variable that no program reads, and a collector that stays
# as it is.
NOTHING = ("environment:ADVISOR_NOTHING=1", "gc:threshold=700")


@dataclass(frozen=True)
class Case:
    """One script with the changes to try. fixed: the hand-written fix. said: what the losses must be said to be."""

    script: Path
    candidates: tuple[Candidate, ...]
    fixed: Path | None = None
    said: str = "equal"


def side(script: Path) -> Side:
    """A script as it is, by this interpreter."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    ranks = launcher if script.parent.name in RANKS else ()
    return Side("base", (sys.executable, *ranks, str(script)), script.parent, environment(), script.stem)


def session(case: Case, rng: random.Random, budget_s: float) -> tuple[dict[str, Any], Measure, Side]:
    """What a session says of these changes."""
    base = side(case.script)
    layout, _, _ = layout_of(base)
    measure = measurer(layout, rng)
    with scratch() as folder:
        one = Session(base, measure, budget_s, tell, side_of=Mirrors(Path(folder)).side, began=time.monotonic())
        return to_builtins(one.run(case.candidates)), measure, base


def labels(case: Case) -> dict[str, Any]:
    """What is said of the losses of the first steps; nothing is timed, so that no other work on the machine matters."""
    base = side(case.script)
    with scratch() as folder:
        sides = Mirrors(Path(folder))
        every = [losses(sides.side(base, (), shift=shift)) for shift in (0, 0, 1)]
        same, again, other = (one["losses"] for one in every)
        band = Band(numbers.same(same, again), numbers.distance(same, again), numbers.distance(same, other))
        trials = []
        for one in case.candidates:
            facts = losses(sides.side(base, one.treatments))
            alike = facts["counts"].get("samples") == every[0]["counts"].get("samples")
            said = numbers.compare(same, facts["losses"], band)[0] if alike else "not compared"
            verdict = "reached" if facts["reached"] or one.treatments[0].name == "environment" else "no effect"
            trials.append({"title": one.title, "verdict": verdict, "numbers": said, "gain": None})
    return {"trials": trials, "repeats": band.repeats}


def losses(of: Side) -> dict[str, Any]:
    """The facts of a process after its first steps, its losses as numbers."""
    # A side says what stays of the files that its script writes; its process is told where to note them.
    with undo.journal() as (notes, _), Runner(of.command, of.folder, of.env, {**of.settings, "undo": notes}) as process:
        try:
            process.ready()
            process.turn(WARMUP)
            process.turn(_LABEL_STEPS)
        except EndedError as ended:
            if ended.status:
                raise GateError(ended.last, FAILED) from ended
        facts = process.facts()
    return facts | {"losses": [float.fromhex(text) for text in facts.get("losses", ())]}


def tell(text: str) -> None:
    """What is being measured."""
    print(f"  {text}", file=sys.stderr, flush=True)


def truth(measure: Measure, slow: Side, fixed: Side, pairs: int) -> dict[str, float]:
    """The gain of the hand-written fix and its interval."""
    ratios = [measure(treated(slow, ()), treated(fixed, ())).pair.ratio for _ in range(pairs)]
    judged = judge(ratios, Design(1, looks=(pairs,)), noise_floor(()))
    return {"gain": judged.gain, "low": judged.low, "high": judged.high}


def cases() -> dict[str, Case]:
    """Every case, by its name."""
    found = {}
    for name in (*PAIRS, *PATCHED):
        slow, fixed = (SAMPLES / "pairs" / name / file for file in ("slow.py", "fixed.py"))
        one = treatment(PAIRS[name]) if name in PAIRS else patch(slow, slow.read_text(), fixed.read_text())
        said = "not compared" if name == "small-batch" else "rounded" if name in ROUNDED else "equal"
        found[name] = Case(slow, (one,), fixed, said)
    healthy = {f"healthy/{path.stem}": path for path in sorted((SAMPLES / "healthy").glob("*.py"))}
    controls = {f"controls/{path.parent.name}": path for path in sorted((SAMPLES / "controls").glob("*/plain.py"))}
    # Alone, a change has the whole 5 % for a false win: with two of them, each would have half of it.
    for place, (name, path) in enumerate((healthy | controls).items()):
        found[name] = Case(path, (treatment(NOTHING[place % len(NOTHING)]),))
    for name, (old, new) in CHANGED.items():
        script = SAMPLES / "healthy" / f"{name}.py"
        before = script.read_text()
        assert old in before, name
        found[f"changed/{name}"] = Case(script, (patch(script, before, before.replace(old, new)),), said="changed")
    return found


def treatment(words: str) -> Candidate:
    """A change as it is typed."""
    return Candidate(words, (parse(words),))


def patch(script: Path, before: str, after: str) -> Candidate:
    """An edit of the script."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{script.name}", f"b/{script.name}"
    )
    return Candidate("patch", (Treatment("patch", {"diffs": ["".join(lines)], "names": []}),))


def measured(name: str, case: Case, args: argparse.Namespace) -> dict[str, Any]:
    """One case; a script that cannot be measured says why."""
    result: dict[str, Any] = {"name": name, "said": case.said, "began": time.strftime("%F %T"), "load": os.getloadavg()}
    began = time.monotonic()
    try:
        if args.labels:
            result["tried"] = labels(case)
            return result | {"seconds": time.monotonic() - began}
        result["tried"], measure, base = session(case, random.Random(name), 60 * args.budget)
        if case.fixed is not None and result["tried"]["trials"][0]["gain"] is not None:
            result["truth"] = truth(measure, base, side(case.fixed), args.pairs)
    except GateError as failure:
        result["failed"] = str(failure)
    return result | {"load_after": os.getloadavg(), "seconds": time.monotonic() - began}


def right(one: dict[str, Any], trial: dict[str, Any]) -> bool | None:
    """Whether what is said of the losses is what the change does; None where nothing can be said.

    An exact change leaves bitwise equal losses if the script repeats them; one that rounds may leave them, too.
    """
    seen = trial["numbers"]
    if one["said"] == "not compared":
        return bool(seen == "not compared")
    if seen == "not compared" or trial["verdict"] in ("no effect", "failed"):
        return None
    if one["said"] == "changed":
        return bool(seen == "outside seeds")
    exact = one["said"] == "equal" and one["tried"]["repeats"]
    return seen == "equal" if exact else seen in ("equal", "within seeds")


def table(results: Sequence[dict[str, Any]]) -> None:
    """What came of the cases, and how many agree."""
    agree, wins, labels = [], [], []
    for one in results:
        if "failed" in one:
            print(f"| {one['name']} | {one['failed']} | | | | |")
            continue
        for trial in one["tried"]["trials"]:
            if "truth" in one:
                agree.append(trial["low"] <= one["truth"]["high"] and one["truth"]["low"] <= trial["high"])
            elif one["name"].startswith(("healthy/", "controls/")) and trial["gain"] is not None:
                wins.append(trial["verdict"] == "faster")
            label = right(one, trial)
            if label is not None:
                labels.append(label)
            seen = f"{trial['numbers']}{' WRONG' if label is False else ''}"
            cells = (one["name"], trial["title"], trial["verdict"], span(trial), span(one.get("truth")), seen)
            print(f"| {' | '.join(cells)} | {one['load'][0]:.1f} |")
    print(f"{sum(agree)} of {len(agree)} gains agree with the hand-written fix")
    print(f"{sum(wins)} false wins of {len(wins)} changes that change nothing")
    print(f"{sum(labels)} of {len(labels)} labels of losses are right")


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
    parser.add_argument("--budget", type=float, default=60.0, help="minutes of a case, its hand-written fix aside")
    parser.add_argument("--seed", type=int, help="take the cases in the random order of this seed")
    parser.add_argument("--minutes", type=float, default=math.inf, help="no case begins after so many minutes")
    parser.add_argument("--labels", action="store_true", help="only what is said of the losses")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    end_in_order()
    known = [json.loads(line) for line in args.results.read_text().splitlines()] if args.results.exists() else []
    every = list(cases().items())
    if args.seed is not None:
        random.Random(args.seed).shuffle(every)
    began = time.monotonic()
    for name, case in every if not args.table else ():
        wanted = not args.only or any(part in name for part in args.only)
        if not wanted or any(one["name"] == name for one in known):
            continue
        if time.monotonic() - began > 60 * args.minutes:
            break
        print(name, file=sys.stderr)
        known.append(measured(name, case, args))
        with args.results.open("a") as file:
            file.write(json.dumps(known[-1]) + "\n")
    table(known)


if __name__ == "__main__":
    main()
