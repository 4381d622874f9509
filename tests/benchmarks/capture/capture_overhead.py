"""What `advisor run` costs a script, report included: extra CPU seconds, extra wall time, and what it leaves behind.

    python tests/benchmarks/capture/capture_overhead.py [SHAPE …] [--repeats 3] [--threads 1] [--json FILE]

Runs each script of `shapes/` bare and under `advisor run`, alternating, and prints the medians. CPU seconds are user
and system time of all processes, children among them, as the kernel counts them: a busy machine shifts them little.
Wall time is printed, and says nothing where others use the machine. The bounds hold for any script: 5 s of CPU time
and 15 % of the script's own more in all; a run.json of 2 MB; a dataflow file of 20 MB. Exit status 1 where one is
broken.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

SHAPES = Path(__file__).parent / "shapes"
RANKS = {"two_ranks": 2}

# The bounds: seconds and share of the script's own CPU time, bytes.
MOST_S, MOST_SHARE = 5.0, 0.15
MOST_RECORD, MOST_DATAFLOW = 2_000_000, 20_000_000


@dataclass(frozen=True, slots=True)
class Cost:
    """What a command took, s: CPU of it and of all its children, and wall."""

    cpu_s: float
    wall_s: float


@dataclass(frozen=True, slots=True)
class Row:
    """One shape: medians of bare and wrapped runs (s), and the bytes that the last wrapped run left."""

    shape: str
    bare: Cost
    wrapped: Cost
    spread_s: float  # largest less smallest CPU time of the bare runs: what the difference is uncertain by
    files: dict[str, int]

    @property
    def extra_s(self) -> float:
        """CPU time that `advisor run` adds, s."""
        return self.wrapped.cpu_s - self.bare.cpu_s

    @property
    def allowed_s(self) -> float:
        """CPU time that it may add, s."""
        return MOST_S + MOST_SHARE * self.bare.cpu_s

    def broken(self) -> list[str]:
        """The bounds that do not hold."""
        found = ["CPU time"] if self.extra_s > self.allowed_s else []
        found += ["run.json"] if self.files.get("run.json", 0) > MOST_RECORD else []
        dataflow = max((size for name, size in self.files.items() if name.startswith("dataflow")), default=0)
        return found + (["dataflow"] if dataflow > MOST_DATAFLOW else [])


def command_of(shape: str) -> list[str]:
    """How the script is started, without the interpreter where it is a plain script."""
    script = str(SHAPES / f"{shape}.py")
    if shape in RANKS:
        torchrun = [sys.executable, "-m", "torch.distributed.run"]
        return [*torchrun, "--standalone", f"--nproc-per-node={RANKS[shape]}", script]
    return [sys.executable, script]


def wrapped_command(shape: str, output: Path) -> list[str]:
    """The same under `advisor run`."""
    command = command_of(shape)
    rest = ["--", *command] if shape in RANKS else command[1:]
    return [sys.executable, "-m", "advisor", "run", "--quiet", "--output", str(output), *rest]


def run(command: Sequence[str], threads: int, log: Path) -> Cost:
    """Runs to the end. Raises where it fails: what was measured would be something else."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {**os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {})}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # installing compiles modules: that belongs to neither
    with log.open("w") as said:
        subprocess.run(command, check=True, env=environment, stdout=said, stderr=said)
    after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    return Cost(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, ended - began)


def measure(shape: str, repeats: int, threads: int, keep: Path | None) -> Row:
    """Bare and wrapped runs of one shape, in turn."""
    bare, wrapped, files = [], [], {}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        for number in range(repeats):
            bare.append(run(command_of(shape), threads, log))
            output = (keep or Path(folder)) / f"{shape}-{number}"
            wrapped.append(run(wrapped_command(shape, output), threads, log))
            files = {str(one.relative_to(output)): one.stat().st_size for one in output.rglob("*") if one.is_file()}
    times = [one.cpu_s for one in bare]
    return Row(shape, _middle(bare), _middle(wrapped), max(times) - min(times), files)


def _middle(costs: Sequence[Cost]) -> Cost:
    return Cost(median(one.cpu_s for one in costs), median(one.wall_s for one in costs))


def shown(row: Row) -> str:
    """One line of the table."""
    traces = sorted(size for name, size in row.files.items() if name.endswith(".trace.json.gz"))
    sizes = [row.files.get("run.json", 0), sum(traces), sum(row.files.values())]
    dataflow = sum(size for name, size in row.files.items() if name.startswith("dataflow"))
    return (
        f"{row.shape:<22} {row.bare.cpu_s:>7.1f} {row.extra_s:>7.1f} {row.extra_s / row.bare.cpu_s:>7.0%} "
        f"{row.allowed_s:>7.1f} {row.wrapped.wall_s - row.bare.wall_s:>7.1f} {row.spread_s:>6.1f} "
        + " ".join(f"{size / 1e6:>8.2f}" for size in (sizes[0], dataflow, *sizes[1:]))
        + f"  {', '.join(row.broken()) or 'inside'}"
    )


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    known = sorted(path.stem for path in SHAPES.glob("*.py"))
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", default=known, help=", ".join(known))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="OMP_NUM_THREADS of both; 0: as the machine has it")
    parser.add_argument("--json", type=Path, help="also write what was measured, with the size of every file")
    parser.add_argument("--keep", type=Path, help="keep the reports in this folder")
    args = parser.parse_args()
    print(
        f"{'shape':<22} {'bare':>7} {'extra':>7} {'share':>7} {'allowed':>7} {'wall':>7} {'spread':>6} "
        f"{'run.json':>8} {'dataflow':>8} {'traces':>8} {'all':>8}\n"
        f"{'':<22} {'CPU s':>7} {'CPU s':>7} {'':>7} {'CPU s':>7} "
        f"{'s':>7} {'CPU s':>6} {'MB':>8} {'MB':>8} {'MB':>8} {'MB':>8}"
    )
    rows = []
    for shape in args.shapes:
        rows.append(measure(shape, args.repeats, args.threads, args.keep))
        print(shown(rows[-1]), flush=True)
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return 1 if any(row.broken() for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
