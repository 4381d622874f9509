"""How right the advice is on this machine's GPU: promised against measured, in at most 8 minutes.

    python tests/benchmarks/gpu/measured_pairs.py                     whole rows, as many as 8 minutes give
    python tests/benchmarks/gpu/measured_pairs.py --pack pairs.tar.gz the same, and everything in one file to send
    python tests/benchmarks/gpu/measured_pairs.py --minutes 0         all rows; what has a result is not measured again
    python tests/benchmarks/gpu/measured_pairs.py --results FOLDER --table                 only the table; no GPU needed
    python tests/benchmarks/gpu/measured_pairs.py --results FOLDER --again --stages advise --same-profiles
                                             the rules as they are now, about runs that were recorded elsewhere

Each pair of `measured_pairs/` runs without a profiler, slow.py and fixed.py in turns, in processes of their own; then
`advisor run` looks at each. Three scripts of samples/healthy/ are looked at as well; they are small for a GPU.
Measure on a machine that does nothing else. Exit status 3: there is no GPU, or nothing was measured.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "pairs"), str(Path(__file__).parents[3])]

import from_checkout  # noqa: E402
import gpu_machine  # noqa: E402
import measured_table  # noqa: E402
import pairs  # noqa: E402

from advisor.errors import INCONCLUSIVE, OK, USAGE  # noqa: E402

SCRIPTS = Path(__file__).with_suffix("")
# After so many pairs each of these comes.
HEALTHY = {"vision_transformer": 4, "image_cnn": 8, "tiny_gpt": 12}
MINUTES, REPEATS = 8.0, 3
# What a row is taken to last before one has been measured, and one that compiles; both are estimates.
ROW_S, COMPILED_ROW_S = 45.0, 100.0
KNOWN_S = 1.0  # a row that takes less had its result already
PACKED_BYTES = 2_000_000  # of a file: larger traces stay where they are


def cases(launcher: str = "") -> list[pairs.Case]:
    """Every pair and healthy script, in the order in which they are measured. launcher: how a script is started."""
    folder = SCRIPTS.relative_to(from_checkout.ROOT).as_posix()
    more = {"folder": folder} | ({"launcher": launcher} if launcher else {})
    faults = tomllib.loads((SCRIPTS / "faults.toml").read_text("utf-8"))
    found = []
    for number, (name, facts) in enumerate(faults.items(), 1):
        scripts = {role: SCRIPTS / name / f"{role}.py" for role in ("slow", "fixed")}
        found.append(pairs.Case(name, "pair", scripts, facts | more))
        for healthy in (one for one, after in HEALTHY.items() if after == number):
            found.append(pairs.Case(healthy, "healthy", {"slow": pairs.SAMPLES / "healthy" / f"{healthy}.py"}, more))
    return found


def look_at(known: Sequence[pairs.Case], args: argparse.Namespace, began: float) -> int:
    """Whole rows, as many as the time gives; how many there was none for."""
    unlimited = argparse.Namespace(**{**vars(args), "minutes": 0})
    left, longest = 0, 0.0
    for case in known:
        needs = COMPILED_ROW_S if case.facts.get("compiles") else longest or ROW_S
        if args.minutes and time.monotonic() - began + needs > 60 * args.minutes:
            left += 1
            continue
        started = time.monotonic()
        pairs.look_at([case], unlimited, measured_table.line_of)
        took = time.monotonic() - started
        if took > KNOWN_S and not case.facts.get("compiles"):
            longest = max(longest, took)
    return left


def wanted(known: Sequence[pairs.Case], args: argparse.Namespace) -> list[pairs.Case]:
    """The cases that are asked for; with --same-profiles those that were recorded."""
    asked = [case for case in known if not args.only or any(part in case.name for part in args.only)]
    if not args.same_profiles:
        return asked
    return [case for case in asked if all(folder.exists() for folder in profiles(case, args.results).values())]


def profiles(case: pairs.Case, results: Path) -> dict[str, Path]:
    """Where `advisor run` leaves what it recorded of a case, by role."""
    return {role: results / "profiles" / f"{case.kind}-{case.name}-{role}" for role in case.scripts}


def document(results: Path, known: list[pairs.Case]) -> str:
    """Machine, table and what recording costs, as Markdown."""
    parts = [gpu_machine.document(results), "", measured_table.document(pairs.stored(results, known))]
    rows = [
        gpu_machine.dilation_row(f"{case.name}, {role}", folder)
        for case in known
        for role, folder in profiles(case, results).items()
    ]
    parts += [
        "",
        "| recorded run | step without a profiler, ms | with shapes (times) | with shapes and lines (times) |",
    ]
    return "\n".join([*parts, "|---|---|---|---|", *filter(None, rows)])


def pack(results: Path, text: str, file: Path) -> list[str]:
    """Everything in one file: results, the table, what was recorded. Returns what was too large for it."""
    left, top = [], file.name.partition(".")[0]
    with tarfile.open(file, "w:gz") as packed:
        for path in sorted(
            path for path in results.rglob("*") if path.is_file() and path.absolute() != file.absolute()
        ):
            name = path.relative_to(results).as_posix()
            if path.stat().st_size > PACKED_BYTES:
                left.append(name)
            elif path.suffix in (".json", ".gz"):
                packed.add(path, f"{top}/{name}", recursive=False)
        written = tarfile.TarInfo(f"{top}/table.md")
        written.size = len(text.encode())
        packed.addfile(written, io.BytesIO(text.encode()))
    return left


def measure(args: argparse.Namespace, began: float) -> int:
    """Measures and asks what is asked for; an exit status other than 0 where that is not possible."""
    args.results.mkdir(parents=True, exist_ok=True)
    launcher, again = "", args.same_profiles and "measure" not in args.stages
    if not again:
        facts, forks = gpu_machine.facts()
        if not facts["gpu"] and not args.on_cpu:
            print("measured_pairs: no GPU is visible here, and nothing was measured", file=sys.stderr)
            return INCONCLUSIVE
        file = args.results / gpu_machine.FACTS
        if file.exists() and json.loads(file.read_text("utf-8")) != facts:
            print(
                f"measured_pairs: {args.results} has results of another machine; name another folder", file=sys.stderr
            )
            return USAGE
        file.write_text(json.dumps(facts, indent=1), "utf-8")
        launcher = "" if forks else "python"
        if not (args.results / gpu_machine.CALIBRATION).exists():
            gpu_machine.calibrate(args.results)
    if left := look_at(wanted(cases(launcher), args), args, began):
        print(f"{left} rows had no time left: run the same command again, or with --minutes 0", file=sys.stderr)
    return OK


def main() -> int:
    """The command."""
    began = time.monotonic()
    parser = pairs.options(__doc__, "torch-advisor-measured-pairs")
    parser.set_defaults(repeats=REPEATS, minutes=MINUTES)
    parser.add_argument(
        "--pack", type=Path, metavar="FILE.tar.gz", help="put everything into one file that can be sent"
    )
    parser.add_argument("--on-cpu", action="store_true", help="without a GPU: for a test of this command")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        from_checkout.make_importable(Path(folder))
        status = OK if args.table else measure(args, began)
    if status != OK:
        return status
    text = document(args.results, cases())
    print(text)
    if args.pack:
        left = pack(args.results, text, args.pack)
        print(f"{args.pack}: {args.pack.stat().st_size / 1e6:.1f} MB", file=sys.stderr)
        if left:
            print(f"left out, as larger than {PACKED_BYTES / 1e6:.0f} MB: {', '.join(left)}", file=sys.stderr)
    return OK if pairs.stored(args.results, cases()) else INCONCLUSIVE


if __name__ == "__main__":
    sys.exit(main())
