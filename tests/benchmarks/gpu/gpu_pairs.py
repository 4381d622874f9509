"""Promised against shown, over pairs of real GPU traces: one script before and after one change.

    python tests/benchmarks/gpu/gpu_pairs.py [--traces FOLDER]

Prints a table: the step before and after, what the change gave per sample, and what the rules that advise it promised
on the trace before. All times are profiled ones. FOLDER holds the traces (README there); they are not part of the
project, and what is absent is left out with a line that says so.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "pairs"))

import pair_table

TRACES = Path(__file__).parents[4] / "shared" / "traces"


@dataclass(frozen=True, slots=True)
class Pair:
    """One change.

    before, after   traces, below the folder
    change          what was changed
    rules           those that advise this change or a part of it; none where no rule should
    work            how many times as many samples a step has after it
    """

    before: str
    after: str
    change: str
    rules: tuple[str, ...]
    work: float = 1.0


def _pair(name: str, change: str, *rules: str, work: float = 1.0) -> Pair:
    return Pair(f"pairs/{name}/before.json.gz", f"pairs/{name}/after.json.gz", change, rules, work)


PAIRS = (
    Pair(
        "resnet50_workers0_v100.pt.trace.json.gz",
        "resnet50_workers4_v100.pt.trace.json.gz",
        "ResNet-50, V100: num_workers 0 to 4",
        ("input-bound",),
    ),
    _pair("resnet50-workers-0-to-4-2021", "ResNet-50, GPU not stated: num_workers 0 to 4", "input-bound"),
    _pair("tinylm-batch-4-to-32-rtx3060", "language model, RTX 3060: batch 4 to 32", "small-batch", work=8),
    _pair(
        "particle-transformer-batch-16-to-128-a100",
        "transformer, forward only, A100: batch 16 to 128",
        "small-batch",
        "launch-bound",
        work=8,
    ),
    _pair(
        "nanogpt-overlapped-reduction-h100-rank0of8",
        "GPT, rank 0 of 8 H100: reduce-scatter in backward hooks",
        "exposed-communication",
    ),
    _pair(
        "segment-anything-fast-a100",
        "inference, A100: bf16, fused attention and compilation at once",
        "fp32-matmul",
        "handwritten-attention",
        "launch-bound",
    ),
)


def report(path: Path) -> dict[str, Any]:
    """What `advisor analyze` says of a trace."""
    words = [sys.executable, "-m", "advisor", "analyze", str(path), "--format", "json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{path.name}: {done.stderr.strip()}")
    return dict(json.loads(done.stdout))


def row(pair: Pair, folder: Path) -> str:
    """One line of the table."""
    before, after = report(folder / pair.before), report(folder / pair.after)
    step, then = (one["metrics"]["step_time_us"]["value"] for one in (before, after))
    gained = 1 - then / pair.work / step
    advised = {"metrics": {"step_time_us": step}, "outcomes": before["outcomes"]}
    found = [one for one in pair_table.findings(advised) if one["rule"] in pair.rules]
    said = [f"{one['rule']} {pair_table.percent(one['low'], one['high'])}" for one in found]
    inside = [one["low"] <= gained <= one["high"] for one in found if one["high"] is not None]
    shown = pair_table.yes(any(inside)) if inside else "no number" if found else "**nothing found**"
    cells = [pair.change, f"{step / 1e3:.1f}", f"{then / 1e3:.1f}", f"{100 * gained:.0f} %", ", ".join(said), shown]
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, default=TRACES)
    folder = parser.parse_args().traces
    print("| change | step before, ms | after, ms | less time per sample | promised | inside |")
    print("|---|---|---|---|---|---|")
    for pair in PAIRS:
        if (folder / pair.before).exists():
            print(row(pair, folder), flush=True)
        else:
            print(f"{pair.before} is not there: left out", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
