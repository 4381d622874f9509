"""What a coding agent achieves over `advisor mcp`: profile, apply the diff of a finding, profile again, compare.

    python tests/benchmarks/trying/agent_loop.py                      the pairs below, a row each
    python tests/benchmarks/trying/agent_loop.py single-thread        these pairs of samples/pairs

The agent is a script of a few lines: it takes the first finding that has a diff. So the table says what the findings
alone are good for. Step times are those of single profiles, which other work on the machine moves. So both versions are
also run whole, alternating and without a profiler: CPU seconds hardly change with other work, seconds do.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))
from agent_session import Call, session

ROOT = Path(__file__).parents[3]
PAIRS = ("garbage-collection", "anomaly-detection", "single-thread", "needless-workers", "loop-optimizer")
HEAD = ("pair", "finding", "step before", "promised", "step after", "resolved", "CPU s of the script", "its seconds")
# Whole runs of each version; the median counts.
RUNS = 3


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="*", default=PAIRS)
    print(f"| {' | '.join(HEAD)} |")
    print(f"|{'---|' * len(HEAD)}")
    for pair in parser.parse_args().pairs:
        print(f"| {' | '.join((pair, *row(pair)))} |", flush=True)
    return 0


def row(pair: str) -> tuple[str, ...]:
    """The cells of one pair after its name."""
    cells: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("slow.py", "train.py"):
            shutil.copy(ROOT / "samples" / "pairs" / pair / "slow.py", Path(folder) / name)

        async def talk(call: Call, _: Any) -> None:
            cells.extend(await _loop(call, Path(folder)))

        session(Path(folder), talk)
    return tuple(cells)


async def _loop(call: Call, folder: Path) -> list[str]:
    before = await call("profile", script=["train.py"], output="before")
    if before["cannot_answer"]:
        return _cells(before["cannot_answer"])
    found = next((one for one in before["findings"] if one["diff"]), None)
    if found is None:
        why = before["findings"][0]["no_diff"] if before["findings"] else "nothing was found"
        return _cells(f"no finding has a diff: {why}", f"{before['step_ms']} ms")
    subprocess.run(["git", "apply"], input=found["diff"], text=True, cwd=folder, check=True)
    await call("profile", script=["train.py"], output="after")
    compared = await call("compare", base="before", head="after")
    saving = found["saving"]
    promised = f"{saving['low_ms']} to {saving['high_ms']} ms" if saving else "not measured"
    gone = any(one.startswith(f"{found['rule']} ") for one in compared["resolved_findings"])
    ends = (f"{compared[side]} ms" for side in ("base_step_ms", "head_step_ms"))
    return _cells(found["rule"], next(ends), promised, next(ends), "yes" if gone else "no", *_whole(folder))


def _cells(*cells: str) -> list[str]:
    return [*cells, *[""] * (len(HEAD) - 1 - len(cells))]


def _whole(folder: Path) -> tuple[str, str]:
    """CPU seconds and seconds of both versions of the script, run alternately."""
    pairs = [[_run(name, folder) for name in ("slow.py", "train.py")] for _ in range(RUNS)]
    found = []
    for which in (0, 1):
        before, after = (statistics.median(pair[side][which] for pair in pairs) for side in (0, 1))
        fewer = sum(pair[1][which] < pair[0][which] for pair in pairs)
        found.append(f"{before:.1f} to {after:.1f} ({100 * (after / before - 1):+.0f} %, less in {fewer} of {RUNS})")
    return found[0], found[1]


def _run(script: str, folder: Path) -> tuple[float, float]:
    """CPU seconds, with those of its processes, and seconds of a run."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, script], cwd=folder, check=True, capture_output=True)
    took, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, took


if __name__ == "__main__":
    raise SystemExit(main())
