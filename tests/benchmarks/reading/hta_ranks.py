"""What HTA takes for the ranks of a job that `many_ranks.py` generates: load and three breakdowns.

    python tests/benchmarks/reading/hta_ranks.py --jobs 64x20 --hta PATH_TO_PYTHON_WITH_HTA

CPU seconds and wall time of its process tree, and the peak of its proportional set size, sampled in the same run. It is
stopped after `--seconds` or above `--gigabytes`. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from many_ranks import write_job
from reading import _descendants, _pss

HTA = """
import sys, warnings, logging
warnings.simplefilter("ignore"); logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
if __name__ == "__main__":
    files = dict(enumerate(sys.argv[1:]))
    a = TraceAnalysis(trace_files=files, trace_dir="/")
    for name in ("temporal_breakdown", "gpu_kernel_breakdown", "idle_time_breakdown"):
        getattr(a, "get_" + name)(visualize=False)
"""


def row(name: str, folder: Path, args: argparse.Namespace) -> str:
    """Runs HTA once: a row of the table."""
    paths = sorted(map(str, folder.iterdir()), key=lambda path: int(path.rpartition("_")[2].partition(".")[0]))
    before, started, peak, stopped = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic(), 0, ""
    command = [args.hta, "-c", HTA, *paths]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    while process.poll() is None:
        time.sleep(0.5)
        peak = max(peak, sum(map(_pss, [process.pid, *_descendants(process.pid)])))
        if peak > args.gigabytes * 1e9 or time.monotonic() - started > args.seconds:
            stopped = f"stopped at {'the limit of memory' if peak > args.gigabytes * 1e9 else 'the limit of time'}"
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    ended = stopped or ("whole" if process.returncode == 0 else f"exit {process.returncode}")
    return f"| {name} | {cpu:.0f} | {wall:.0f} | {peak / 1e9:.1f} GB | {ended} |\n"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", nargs="*", default=["64x20"], metavar="RANKSxMB")
    parser.add_argument("--hta", required=True, help="a Python that has HolisticTraceAnalysis")
    parser.add_argument("--seconds", type=float, default=1200)
    parser.add_argument("--gigabytes", type=float, default=16)
    parser.add_argument("--folder", help="where the jobs are written (default: a temporary folder)")
    args = parser.parse_args()
    sys.stdout.write("| job | CPU s | wall s | peak memory | ended |\n|---|---|---|---|---|\n")
    for job in args.jobs:
        ranks, megabytes = job.split("x")
        with tempfile.TemporaryDirectory(prefix="hta-", dir=args.folder) as folder:
            write_job(Path(folder), int(ranks), float(megabytes))
            sys.stdout.write(row(f"{ranks} x {megabytes} MB", Path(folder), args))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
