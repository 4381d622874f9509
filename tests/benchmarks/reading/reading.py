"""How fast and how large: reading a trace here, in plain Python, and with peers, on the same file in the same run.

    python tests/benchmarks/reading/reading.py --sizes 10 200 1000 --hta PATH_TO_PYTHON_WITH_HTA

Prints a Markdown table. Each measurement is a process of its own: CPU seconds of its whole process tree (user and
system, imports included) and wall time; and in another process the peak of the proportional set size over the tree
(Linux), sampled: looking at a process's memory holds its threads up. `analyze` is the whole command: read, analyse,
rules, JSON report.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from made_traces import write

SAMPLE_SECONDS = 0.05
JSON = "import json, sys; json.load(open(sys.argv[1], 'rb'))"
# As the command imports numpy.
NUMPY = "from advisor.trace.read.allocator import import_numpy; import_numpy()\n"
READ = (
    NUMPY
    + """
import sys
from advisor.trace.read.load import load
load(sys.argv[1])
"""
)
ALONE = (
    NUMPY
    + """
import sys
from advisor.trace.read import load
load.AHEAD_BYTES = load.AHEAD_PACKED_BYTES = 1 << 60
load.load(sys.argv[1])
"""
)
STRUCTS = (
    NUMPY
    + """
import sys
from advisor.trace.read import load, rows
load.AHEAD_BYTES = load.AHEAD_PACKED_BYTES = 1 << 60
rows.scanner_of = lambda tables: None
load.load(sys.argv[1])
"""
)
ONE_CORE = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from advisor.cli import main
main(sys.argv[1:])
"""
START = NUMPY + "import advisor.trace.read.load"
START_ALL = NUMPY + "import advisor.engine.engine; from advisor.engine import registry; registry.load_rules()"
HTA = """
import sys, warnings, logging
warnings.simplefilter("ignore"); logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
a = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="/")
for name in ("temporal_breakdown", "gpu_kernel_breakdown", "idle_time_breakdown", "comm_comp_overlap"):
    getattr(a, "get_" + name)(visualize=False)
"""


@dataclass(frozen=True)
class Cost:
    """What one process tree used."""

    cpu_s: float
    wall_s: float
    code: int


def measured(command: list[str]) -> Cost:
    """Runs a command to its end."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    code = _started(command).wait()
    wall = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(cpu, wall, code)


def peak_bytes(command: list[str]) -> int:
    """Runs a command to its end; the most memory that its processes had at once."""
    process = _started(command)
    peak, ended = [0], threading.Event()
    sampler = threading.Thread(target=_sample, args=(process.pid, peak, ended))
    sampler.start()
    process.wait()
    ended.set()
    sampler.join()
    return peak[0]


def _started(command: list[str]) -> subprocess.Popen[bytes]:
    # As installed, with its byte code written: compiling is no part of any of these.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)


def _sample(pid: int, peak: list[int], ended: threading.Event) -> None:
    while not ended.wait(SAMPLE_SECONDS):
        peak[0] = max(peak[0], sum(map(_pss, [pid, *_descendants(pid)])))


def _descendants(pid: int) -> list[int]:
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [*children, *(below for child in children for below in _descendants(child))]


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)


def commands(path: Path, hta: str | None, out: Path) -> dict[str, list[str]]:
    """What is compared, by name."""
    here = [sys.executable, "-c"]
    analyze = ["analyze", str(path), "--format", "json", "--output", str(out), "--quiet"]
    rows = {
        "read (two threads where large)": [*here, READ, str(path)],
        "read (one thread)": [*here, ALONE, str(path)],
        "read (without the extension)": [*here, STRUCTS, str(path)],
        "analyze, whole command": [sys.executable, "-m", "advisor", *analyze],
        "analyze, on one core": [*here, ONE_CORE, *analyze],
        "json.load": [*here, JSON, str(path)],
    }
    if hta:
        rows["HTA: load and breakdowns"] = [hta, "-c", HTA, str(path)]
    return rows


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=float, nargs="+", default=[10, 200], help="megabytes of text")
    parser.add_argument("--hta", help="a Python that has HolisticTraceAnalysis")
    parser.add_argument("--hta-largest", type=float, default=200, help="the largest size that HTA is given")
    parser.add_argument("--json-largest", type=float, default=1000, help="the largest size that json.load is given")
    parser.add_argument("--only", default="", help="measure only rows whose name contains this")
    parser.add_argument("--folder", help="where the traces are written (default: a temporary folder)")
    args = parser.parse_args()
    say = sys.stdout.write
    say(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, ")
    say(f"load {os.getloadavg()[0]:.1f}, {time.strftime('%Y-%m-%d')}\n\n")
    for what, code in (("the reader", START), ("everything that analyze needs", START_ALL)):
        measured([sys.executable, "-c", code])  # so that byte code is there
        say(f"start-up (imports of {what}): {measured([sys.executable, '-c', code]).cpu_s:.2f} CPU s\n")
    say("\n")
    say("| trace | what | CPU s | wall s | MB/s of CPU | peak memory | x file |\n|---|---|---|---|---|---|---|\n")
    largest = {"HTA": args.hta_largest, "json.load": args.json_largest}
    with tempfile.TemporaryDirectory(prefix="reading-", dir=args.folder) as folder:
        for size in args.sizes:
            path = Path(folder) / "trace.json"
            real = write(path, size)
            for name, command in commands(path, args.hta, Path(folder) / "out.json").items():
                if args.only not in name or size > largest.get(name.partition(":")[0], size):
                    continue
                (Path(folder) / "out.json").unlink(missing_ok=True)
                cost = measured(command)
                (Path(folder) / "out.json").unlink(missing_ok=True)
                peak = peak_bytes(command)
                failed = "" if cost.code == 0 else f" (exit {cost.code})"
                say(
                    f"| {real / 1e6:.0f} MB | {name}{failed} | {cost.cpu_s:.2f} | {cost.wall_s:.2f} | "
                    f"{real / 1e6 / cost.cpu_s:.0f} | {peak / 1e6:.0f} MB | {peak / real:.2f} |\n"
                )
                sys.stdout.flush()


if __name__ == "__main__":
    main()
