"""Does the batch size that small-batch names deliver the samples per second that it promises?

    python tests/benchmarks/pairs/small_batch.py [--repeat 3]

Profiles samples/cifar10_cnn.py as it is, takes the number and the range from the finding, writes the number into a
temporary copy of the script (that one line and nothing else), runs the copy, and prints both. Exit status 1 where the
measured throughput lies outside the promised range, 3 where the machine is too busy to measure anything.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SAMPLE = Path(__file__).parents[3] / "samples" / "cifar10_cnn.py"
# With more than this of its cores in use by others, a machine measures the others.
_QUIET = 0.5
_LINE = re.compile(r"batch_size=\d+")


def report_of(script: Path, folder: Path) -> dict[str, Any]:
    """The report of one run of a script."""
    command = [sys.executable, "-m", "advisor", "run", "--quiet", "--output", str(folder), str(script)]
    subprocess.run(command, check=True, cwd=script.parent, stdout=subprocess.DEVNULL)
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return report


def promise(report: dict[str, Any]) -> tuple[int, float, float]:
    """The batch size that the report names, and the samples per second it promises (low, high)."""
    for outcome in report["outcomes"]:
        if outcome["rule"] == "small-batch":
            for finding in outcome["findings"]:
                facts = finding["facts"]
                low, high = facts["promised_samples_per_second"]
                return facts["suggested_batch_size"], low, high
            raise SystemExit(f"small-batch found nothing: {outcome['status']} {outcome['reason']}")
    raise SystemExit("the report has no rule small-batch")


def rates(report: dict[str, Any], batch: int) -> tuple[float, float]:
    """Samples per second by the mean and by the median of the steps without the profiler."""
    times = report["steps"]["unprofiled_us"]
    return batch / times["mean"] * 1e6, batch / times["median"] * 1e6


def once(folder: Path) -> bool:
    """One comparison; whether the measured throughput is in the promised range."""
    script = folder / SAMPLE.name
    shutil.copy(SAMPLE, script)
    before = report_of(script, folder / "before")
    batch, low, high = promise(before)
    script.write_text(_LINE.sub(f"batch_size={batch}", SAMPLE.read_text(), count=1))
    by_mean, by_median = rates(report_of(script, folder / "after"), batch)
    now = int(_LINE.search(SAMPLE.read_text())[0].partition("=")[2])  # type: ignore[index]
    was, _ = rates(before, now)
    held = low <= by_mean <= high
    print(f"batch_size={now}: {was:,.0f} samples/s (mean step)")
    measured = f"{by_mean:,.0f} by the mean step, {by_median:,.0f} by the median"
    print(f"batch_size={batch}: promised {low:,.0f} to {high:,.0f}, measured {measured}")
    print("in the promised range" if held else "OUTSIDE the promised range")
    return held


def main() -> int:
    """Runs the comparison as often as asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeat", type=int, default=1)
    args = parser.parse_args()
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load > _QUIET * cores:
        print(f"not measured: the machine is busy (load {load:.1f} on {cores} cores)")
        return 3
    results = []
    for _ in range(args.repeat):
        with tempfile.TemporaryDirectory() as folder:
            results.append(once(Path(folder)))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
