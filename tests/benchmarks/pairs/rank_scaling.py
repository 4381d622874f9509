"""What `--what-if-ranks` computes from the smallest job beside what larger ones take: data-parallel training on gloo.

    python tests/benchmarks/pairs/rank_scaling.py --ranks 2 4 8

Each job is run under `advisor run` with torchrun; from the first one the steps of the others are computed. All ranks
share this machine's cores: with more ranks than cores they compute longer, which the computation says it excludes.
So a last column replaces the computing part of the range by what the larger job's own ranks computed: what is left is
the model of communication. Gloo's threads, too, compete for the cores, so even that is no clean measurement.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parents[2] / "scripts" / "scaling.py"
_LIMIT_S = 420


def captured(ranks: int, folder: Path) -> bool:
    """Whether the job of so many ranks ended and left a report."""
    words = [sys.executable, "-m", "advisor", "run", "-q", "-o", str(folder), "--", sys.executable]
    words += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), str(SCRIPT)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        print(f"{ranks} ranks: not done in {_LIMIT_S} s")
        return False
    if done.returncode:
        print(f"{ranks} ranks: status {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
    return done.returncode == 0


def computed(folder: Path, numbers: list[int]) -> dict[str, Any]:
    """`what_if_ranks` of a job."""
    asked = ",".join(map(str, numbers))
    words = [sys.executable, "-m", "advisor", "analyze", str(folder), "-q", "--format", "json"]
    done = subprocess.run([*words, "--what-if-ranks", asked], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)["what_if_ranks"]
    return found


def main() -> None:
    """Runs the jobs and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--keep", type=Path, default=None, help="folder for the jobs")
    args = parser.parse_args()
    root = args.keep or Path(tempfile.mkdtemp(prefix="rank-scaling-"))
    jobs = {ranks: root / str(ranks) for ranks in args.ranks if captured(ranks, root / str(ranks))}
    first, *others = jobs
    told = computed(jobs[first], others)
    if not told["rows"]:
        sys.exit(told["message"])
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; computed from {first} ranks")
    print(f"of {first} ranks: step {told['step_us'] / 1e3:.1f} ms, {told['alone_us'] / 1e3:.1f} ms of it computing")
    for fit in told["fitted"]:
        low, high = fit["low_latency_us"] / 1e3, fit["high_latency_us"] / 1e3
        print(f"{fit['kind']}: {low:.2f} to {high:.2f} ms and {fit['bytes_per_second'] / 1e6:.0f} MB/s")
    print("| ranks | computed, ms | measured, ms | measured computing, ms | computed with that, ms |")
    print("|---|---|---|---|---|")
    for row in told["rows"]:
        own = computed(jobs[row["ranks"]], [first])
        low, high = row["low_us"] / 1e3, row["high_us"] / 1e3
        if own["alone_us"] is None:
            print(f"| {row['ranks']} | {low:.1f} to {high:.1f} | {own['message']} | | |")
            continue
        more = (own["alone_us"] - told["alone_us"]) / 1e3
        measured = f"{own['step_us'] / 1e3:.1f} | {own['alone_us'] / 1e3:.1f}"
        print(f"| {row['ranks']} | {low:.1f} to {high:.1f} | {measured} | {low + more:.1f} to {high + more:.1f} |")


if __name__ == "__main__":
    main()
