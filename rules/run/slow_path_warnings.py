"""PyTorch warned that it uses a slow path.

## What it looks at
The first warnings that were shown while the script ran, as capture recorded them: those of PyTorch about performance
(a tensor created from a list of arrays, weights of a recurrent layer in several chunks, an op that falls back to the
CPU, gradients in another layout than their buckets, a CUDA graph captured again …), and any `PerformanceWarning`.

## Why it costs time
Each reports a slow path once, the first time; the slow path is still used in every step after the warning has scrolled
away.

## How to fix it
As the finding says. The line is the one that the warning named.

## When to leave it
Where the line runs once, before the training. The cost cannot be derived from the text of a warning: measure the
change, or look for its line among the lines of the report.
"""

from __future__ import annotations

from collections.abc import Iterator

from advisor.api import (
    Breakdown,
    Example,
    Finding,
    LineCosts,
    RankRecord,
    Source,
    Steps,
)

from ..shared._examples import STEPS_ON_CPU
from ..shared._places import place
from ..shared._words import percent, plural
from ._torch_warnings import warned

CONFIRMED = "measured pair on a CPU: a tensor from a list of arrays, with PyTorch's warning, against one array"


def check(
    record: RankRecord,
    steps: Steps,
    breakdown: Breakdown,
    costs: LineCosts | None,
    *,
    min_share: float = 0.02,  # of the step on the line that the warning names, where lines were recorded; less is noise
) -> Iterator[Finding]:
    shown = f"Of {plural(len(record.warnings), 'warning')} shown, one reports a slow path"
    for one in warned(record):
        share = _share(one.where, costs, steps)
        # A line of the script that no step runs, or that takes no time, is warned of in vain.
        if share is not None and share < min_share and not breakdown.on_device:
            continue
        takes = f", a line that takes {percent(share)} of the step" if share is not None else ""
        yield Finding(
            message=f"{shown}{place(one.where)}{takes}: {one.hint.means}.",
            where=(one.where,) if one.where else (),
            facts={"warning": one.said} | ({"line_share": share} if share is not None else {}),
            fix=one.hint.fix,
            claims=() if breakdown.on_device or share is None else ("host",),
            at_most="medium",
        )


def _share(where: Source | None, costs: LineCosts | None, steps: Steps) -> float | None:
    """The line's part of the step; None where it is not known."""
    if where is None or costs is None:
        return None
    own = [line for line in costs.lines if (line.source.file, line.source.line) == (where.file, where.line)]
    return sum(line.us for line in own) / steps.step_us


_LIST = "UserWarning: Creating a tensor from a list of numpy.ndarrays is extremely slow. Please consider …"
_RNN = "UserWarning: RNN module weights are not part of single contiguous chunk of memory."


EXAMPLES = [
    Example(
        "a tensor of a list of arrays",
        STEPS_ON_CPU,
        facts={"warnings": [f"train.py:31: {_LIST}"], "user_files": ["train.py"]},
        saves_us="unknown",
        says=("at train.py:31", "list of arrays"),
    ),
    Example(
        "weights of a recurrent layer in pieces",
        STEPS_ON_CPU,
        facts={"warnings": [f"torch/nn/modules/rnn.py:1124: {_RNN}"], "user_files": ["train.py"]},
        saves_us="unknown",
        says=("recurrent layer",),
    ),
    Example(
        "warnings of correctness and of things to come",
        STEPS_ON_CPU,
        facts={
            "warnings": [
                "torch/optim/lr_scheduler.py:182: UserWarning: Detected call of `lr_scheduler.step()` before …",
                "train.py:9: FutureWarning: `torch.cuda.amp.autocast(args...)` is deprecated.",
            ]
        },
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "no warning",
        STEPS_ON_CPU,
        facts={"warnings": []},
        saves_us=None,
    ),
    Example(
        "a bare trace does not tell",
        STEPS_ON_CPU,
        saves_us=None,
        near_miss=True,
        skipped="not captured by `advisor run`",
    ),
]
