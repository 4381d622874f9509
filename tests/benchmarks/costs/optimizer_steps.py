"""What a step of an optimizer costs on one core of a CPU: op by op, in lists, and fused.

    OMP_NUM_THREADS=1 python tests/benchmarks/costs/optimizer_steps.py            every class and size, as a table
    OMP_NUM_THREADS=1 python tests/benchmarks/costs/optimizer_steps.py --only Adam --seconds 1

The three forms take turns within a round, so that what else runs on the machine meets all of them, and each step is
timed by the CPU time of its thread. Before a timed step either nothing runs ("warm") or work that leaves nothing of
parameters and state in the core's own caches ("cold"), as the passes of a model do: most training steps lie between.
The constants `optimizer.*` of advisor/constants.toml are made from this: `--fit` prints them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

TENSORS = (10, 60, 300)
ELEMENTS = (1_000, 10_000, 100_000, 1_000_000)
# More in all than these would need gigabytes.
MOST = 20_000_000
CLASSES: dict[str, dict[str, Any]] = {
    "Adam": {"lr": 1e-3},
    "AdamW": {"lr": 1e-3},
    "SGD": {"lr": 1e-3, "momentum": 0.9},
    "Adagrad": {"lr": 1e-3},
    "SGD plain": {"lr": 1e-3},
}
FORMS: dict[str, dict[str, bool]] = {
    "loop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
# What other work writes between two steps: more than a core's own caches hold, less than what all cores share.
_BETWEEN = torch.ones(1_500_000)
FEWEST, ENOUGH = 7, 60


def optimizer(name: str, form: str, tensors: int, elements: int) -> torch.optim.Optimizer:
    """An optimizer of parameters that have gradients, after its first step."""
    params = [torch.nn.Parameter(torch.randn(elements)) for _ in range(tensors)]
    for param in params:
        param.grad = torch.randn(elements)
    kind = getattr(torch.optim, name.split(maxsplit=1)[0])
    made: torch.optim.Optimizer = kind(params, **CLASSES[name], **FORMS[form])
    made.step()
    return made


def step_us(made: torch.optim.Optimizer, *, cold: bool) -> float:
    """CPU time of one step."""
    if cold:
        _BETWEEN.mul_(1.0).add_(0.0)
    else:
        made.step()
    began = time.thread_time_ns()
    made.step()
    return (time.thread_time_ns() - began) / 1e3


def measured(name: str, tensors: int, elements: int, *, cold: bool, seconds: float) -> dict[str, Any]:
    """Median of each form, and of what the loop takes beside it in the same round."""
    made = {form: optimizer(name, form, tensors, elements) for form in FORMS}
    rounds: list[dict[str, float]] = []
    ends = time.monotonic() + seconds
    while len(rounds) < FEWEST or (time.monotonic() < ends and len(rounds) < ENOUGH):
        rounds.append({form: step_us(one, cold=cold) for form, one in made.items()})
    row: dict[str, Any] = {"name": name, "tensors": tensors, "elements": elements, "cold": cold, "n": len(rounds)}
    for form in FORMS:
        row[form] = statistics.median(one[form] for one in rounds)
        row[f"{form}_gain"] = statistics.median(one["loop"] / one[form] for one in rounds)
    return row


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(CLASSES), metavar="CLASS")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each size (default: 1)")
    parser.add_argument("--json", type=Path, help="also append the rows to this file, one a line")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("| optimizer | tensors | elements | before | loop, µs | foreach, µs | fused, µs | fused, times | n |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in args.only:
        for tensors in TENSORS:
            for elements in ELEMENTS:
                if tensors * elements > MOST:
                    continue
                for cold in (False, True):
                    row = measured(name, tensors, elements, cold=cold, seconds=args.seconds)
                    print(
                        f"| {name} | {tensors} | {elements:,} | {'cold' if cold else 'warm'} | {row['loop']:,.0f} | "
                        f"{row['foreach']:,.0f} | {row['fused']:,.0f} | {row['fused_gain']:.2f} | {row['n']} |",
                        flush=True,
                    )
                    if args.json:
                        with args.json.open("a", encoding="utf-8") as rows:
                            rows.write(json.dumps(row) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
