"""Real traces repeated to one size: reading, the whole command, and peers, as a Markdown table.

    python tests/benchmarks/reading/real_traces.py TRACE[.gz] … --megabytes 200 --times 5 --hta PATH_TO_PYTHON_WITH_HTA

CPU seconds of each process: medians over the given number of turns, in which reading and the command alternate, and in
the first `--peer-times` turns also `json.load` and HTA (load and three breakdowns). Peak memory is `ru_maxrss`, shared
libraries included, over the size of the file; also medians.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import repeated
from reading import HTA, JSON, READ

BREAKDOWNS = HTA.replace(', "comm_comp_overlap"', "")


@dataclass(frozen=True)
class Cost:
    """What one process took."""

    cpu_s: float
    peak_bytes: int
    code: int


def measured(command: list[str]) -> Cost:
    """Runs a command to its end."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    _, status, used = os.wait4(process.pid, 0)
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss << 10, os.waitstatus_to_exitcode(status))


def median(costs: list[Cost]) -> Cost:
    """The middle of what several turns took; the worst exit status."""
    middle = statistics.median(one.cpu_s for one in costs)
    return Cost(middle, int(statistics.median(one.peak_bytes for one in costs)), max(one.code for one in costs))


def row(source: Path, path: Path, args: argparse.Namespace) -> str:
    """Measures one trace: a row of the table."""
    # In a process of its own: a child's `ru_maxrss` begins with what its parent had at most.
    words = [sys.executable, repeated.__file__, str(source), str(path), str(args.megabytes)]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    size, often = int(said[0]), said[3]
    out = path.with_suffix(".report")
    here = [sys.executable, "-c"]
    own = {
        "read": [*here, READ, str(path)],
        "command": [sys.executable, "-m", "advisor", "analyze", str(path), "--format", "json", "-o", str(out), "-q"],
    }
    peers = {"json": [*here, JSON, str(path)]}
    if args.hta:
        peers["hta"] = [args.hta, "-c", BREAKDOWNS, str(path)]
    costs: dict[str, list[Cost]] = {name: [] for name in (*own, *peers)}
    for turn in range(args.times):
        for name, command in (own | peers if turn < args.peer_times else own).items():
            out.unlink(missing_ok=True)
            costs[name].append(measured(command))
    middle = {name: median(several) for name, several in costs.items()}
    cells = [f"{source.name.partition('.')[0]}, {size / 1e6:,.0f} MB", often]
    for cost in middle.values():
        failed = f" (exit {cost.code})" if cost.code else ""
        cells += [f"{cost.cpu_s:.2f}{failed}", f"{cost.peak_bytes / size:.2f}"]
    whole = middle["command"].cpu_s
    cells.append(f"{whole / middle['read'].cpu_s:.1f}")
    cells += [f"{middle[name].cpu_s / whole:.1f}" for name in peers]
    return f"| {' | '.join(cells)} |\n"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--peer-times", type=int, default=1, help="in how many turns json.load and HTA run, too")
    parser.add_argument("--hta", help="a Python that has HolisticTraceAnalysis")
    parser.add_argument("--folder", help="where the traces are written (default: a temporary folder)")
    args = parser.parse_args()
    say = sys.stdout.write
    say(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, ")
    say(f"load {os.getloadavg()[0]:.1f}, {time.strftime('%Y-%m-%d')}\n\n")
    heads = ["trace", "repeated", "read, CPU s", "x file", "command, CPU s", "x file", "`json.load`, CPU s", "x file"]
    heads += ["HTA, CPU s", "x file"] if args.hta else []
    heads += ["x reading", "x `json.load`", *(["x HTA"] if args.hta else [])]
    say(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|\n")
    for trace in args.traces:
        with tempfile.TemporaryDirectory(prefix="real-", dir=args.folder) as folder:
            say(row(trace, Path(folder) / "trace.json", args))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
