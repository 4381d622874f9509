"""Measures one pair of scripts against each other, and asks `advisor run` about each.

The step time of a process is the *median of the means of blocks of ten steps*. A plain mean is what a user pays, but
one burst of other work on the machine spoils it; a plain median does not see what happens every fifth step or once in
an epoch. Blocks of ten steps hold one period of everything that these scripts do now and then.

The saving is 1 - work-adjusted fixed / slow of two processes that ran in turns of a second (`in_turns.py`), on the log
scale. Pairs of processes are the unit of replication; the interval is Student's t over them.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import in_turns
import step_times

WARM_STEPS = 5  # first steps allocate, choose kernels and start workers
BLOCK = 10
SCRIPT_SECONDS = 60  # a script takes 15 s at most where the machine is quiet; four times that, it hangs
TRIES = 3  # recordings of a script, where other work had the cores in each
ADVISOR = (sys.executable, "-m", "advisor")  # also from a checkout that is not installed
# Two-sided 95 % points of Student's t for 1 … 15 degrees of freedom.
T95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)


def fingerprint(scripts: dict[str, Path]) -> dict[str, str]:
    """A short hash of each script: a result belongs to these texts."""
    return {role: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for role, path in scripts.items()}


def command(launcher: str) -> list[str]:
    """The interpreter, or two ranks of it."""
    if launcher == "torchrun":
        return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return [sys.executable]


def environment() -> dict[str, str]:
    """The caller's environment, without what would change the scripts' threads or colour their output."""
    return {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "FORCE_COLOR")} | {"NO_COLOR": "1"}


def step_us(ends: list[float]) -> float:
    """Step time of one process, µs, from the ends of its optimizer steps in seconds."""
    kept = ends[min(WARM_STEPS, len(ends) // 4) :]
    size = max(1, min(BLOCK, (len(kept) - 1) // 6))
    means = [(kept[i + size] - kept[i]) / size for i in range(0, len(kept) - size, size)]
    return statistics.median(means) * 1e6


def run_us(ends: list[float]) -> float:
    """Mean time of a step with all that happens between steps, of one process, µs, after its first steps."""
    kept = ends[min(WARM_STEPS, len(ends) // 4) :]
    return (kept[-1] - kept[0]) / (len(kept) - 1) * 1e6


class _Launched:
    """A script of several ranks. pid: of its launcher."""

    def __init__(self, script: Path, launcher: str, out: Path) -> None:
        self.script, self.log = script, out.with_suffix(".log")
        words = [*command(launcher), str(Path(__file__).with_name("step_times.py")), str(out), str(script)]
        with self.log.open("w") as handle:
            self.process = subprocess.Popen(words, stdout=handle, stderr=handle, env=environment())
        self.pid = self.process.pid

    def ended(self) -> bool:
        """Whether it has. Raises RuntimeError with the end of its output if it failed."""
        if code := self.process.poll():
            raise RuntimeError(f"{self.script} ended with {code}: {self.log.read_text('utf-8')[-500:]}")
        return code == 0


def timed(scripts: Sequence[Path], launcher: str, of: Callable[[list[float]], float] = step_us) -> list[float]:
    """Step time in µs of each of these scripts, which run in turns, a second each. Raises RuntimeError if one fails."""
    with tempfile.TemporaryDirectory() as folder:
        outs = [Path(folder) / f"{at}.json" for at in range(len(scripts))]
        running: list[in_turns.Process] = [
            _Launched(path, launcher, out) if launcher else step_times.Forked(str(path), out)
            for path, out in zip(scripts, outs, strict=True)
        ]
        stopped = in_turns.run(running, len(scripts) * SCRIPT_SECONDS)
        ends = [json.loads(out.read_text("utf-8")) for out in outs]
        return [of(in_turns.without(*one)) for one in zip(ends, stopped, strict=True)]


def measure(
    scripts: tuple[Path, Path], repeats: int, launcher: str, work: float, of: Callable[[list[float]], float] = step_us
) -> dict[str, Any]:
    """Slow and fixed in turns, another one first each time. Times are µs per step, savings shares of slow's step."""
    times: dict[str, list[float]] = {"slow": [], "fixed": []}
    for repeat in range(repeats):
        swapped = repeat % 2 == 1
        both = timed(scripts[::-1] if swapped else scripts, launcher, of)
        slow_us, fixed_us = both[::-1] if swapped else both
        times["slow"].append(slow_us)
        times["fixed"].append(fixed_us / work)
    logs = [math.log(f / s) for s, f in zip(times["slow"], times["fixed"], strict=True)]
    centre, half = statistics.mean(logs), 0.0
    if len(logs) > 1:
        half = T95[min(len(logs) - 2, len(T95) - 1)] * statistics.stdev(logs) / math.sqrt(len(logs))
    return {
        "slow_us": times["slow"],
        "fixed_us": times["fixed"],
        "saving": 1 - math.exp(centre),
        "low": 1 - math.exp(centre + half),
        "high": 1 - math.exp(centre - half),
    }


def advise(script: Path, launcher: str, profile: Path) -> dict[str, Any]:
    """What advisor says about a script: the parts of its report.json that the table needs.

    `profile` is the folder of its run; where there is none yet, the script is run and it is made, again where other
    work had the cores meanwhile. Once it is there, rules that have changed since are asked about the same run again.
    """
    started, tries = time.monotonic(), 0
    while True:
        fresh = not (profile / "run.json").exists()
        if fresh and (failed := _record(script, launcher, profile)):
            return {"failed": failed}
        report, failed = _report(profile)
        if report is None:
            return {"failed": failed}
        tries += fresh
        if not fresh or tries == TRIES or all(said["id"] != "busy-cores" for said in report["health"]):
            break
        shutil.rmtree(profile)
    kept = {key: report.get(key) for key in ("steps", "breakdown", "outcomes", "health", "joint", "replay")}
    for outcome in kept["outcomes"]:
        outcome.pop("page", None)  # the rule's manual is the same in every report
    metrics = {k: m["value"] for k, m in report["metrics"].items() if m["status"] == "measured"}
    return {**kept, "metrics": metrics, "seconds": time.monotonic() - started}


def _record(script: Path, launcher: str, profile: Path) -> str:
    """Runs the script under `advisor run`; why there is no profile, empty where there is."""
    words = [*ADVISOR, "run", "--quiet", "--output", str(profile)]
    failed = _run([*words, *(["--", *command(launcher)] if launcher else []), str(script)])
    return "" if (profile / "run.json").exists() else failed


def _report(profile: Path) -> tuple[dict[str, Any] | None, str]:
    """The report of a recorded run; None, and why, where there is none."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report.json"
        failed = _run([*ADVISOR, "analyze", "--quiet", "--output", str(out), str(profile)])
        return (json.loads(out.read_text("utf-8")), "") if out.exists() else (None, failed)


def _run(words: list[str]) -> str:
    """Runs a command in an empty folder and says how it ended."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                words,
                capture_output=True,
                text=True,
                timeout=2 * SCRIPT_SECONDS,
                env=environment(),
                check=False,
                cwd=folder,
            )
        except subprocess.TimeoutExpired:
            return "no answer in two minutes"
    return f"status {done.returncode}: {done.stderr[-800:]}"
