"""PyTorch warned that it uses a slow path.

## What it looks at
The first warnings that were shown while the script ran, as capture recorded them: those of PyTorch about performance
(a tensor created from a list of arrays, weights of a recurrent layer in several chunks, an op that falls back to the
CPU, gradients in another layout than their buckets, a CUDA graph captured again …), and any `PerformanceWarning`. How
long the named line takes is known from the recorded steps, or from the samples of the run after its first step.

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

from advisor.api import Breakdown, Example, Finding, LineCosts, RankRecord, RunSamples, Source, Steps

from ..shared._examples import STEPS_ON_CPU
from ..shared._places import place
from ..shared._run_examples import run_of, sample
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
        of_run = _share_of_run(one.where, record)
        # A line of the script that no step runs, or that takes no time, is warned of in vain.
        if share is not None and max(share, of_run) < min_share and not breakdown.on_device:
            continue
        takes = f", a line that takes {percent(share)} of the step" if share is not None else ""
        if of_run > (share or 0.0):
            takes = f", a line that takes {percent(of_run)} of the run after its first step"
        yield Finding(
            message=f"{shown}{place(one.where)}{takes}: {one.hint.means}.",
            where=(one.where,) if one.where else (),
            facts={"warning": one.said, "share_of_run": of_run} | ({"line_share": share} if share is not None else {}),
            fix=one.hint.fix,
            claims=() if breakdown.on_device or share is None else ("host",),
            at_most="medium",
        )


def _share(where: Source | None, costs: LineCosts | None, steps: Steps) -> float | None:
    """The line's part of the step; None where it is not known."""
    if where is None or costs is None:
        return None
    own = [line for line in costs.lines if line.source.place == (where.file, where.line)]
    return sum(line.us for line in own) / steps.step_us


def _share_of_run(where: Source | None, record: RankRecord) -> float:
    """The line's part of the time after the first training step, by samples of the stack; 0.0 for less than two."""
    run = record.run
    if where is None or run is None:
        return 0.0
    kinds = [kind for kind in run.spent_us if kind not in ("start", "end")]
    mine_us, seen = 0.0, 0
    for kind in kinds:
        samples = [one for one in run.samples if one.kind == kind]
        hits = sum(one.hits for one in samples if _innermost(one) == (where.file, where.line))
        seen += hits
        mine_us += run.spent_us[kind] * hits / max(sum(one.hits for one in samples), 1)
    return mine_us / max(sum(run.spent_us[kind] for kind in kinds), 1.0) if seen >= _SEEN else 0.0


def _innermost(sample: RunSamples) -> tuple[str, int]:
    return sample.inner[:2] if sample.inner[0] else (sample.file, sample.line)


# One sample may be anywhere.
_SEEN = 2

_LIST = "UserWarning: Creating a tensor from a list of numpy.ndarrays is extremely slow. Please consider …"
_ROLLOUT = sample("long", 60, 20, hits=20, inner=("train.py", 31, "rollout"))
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
        "a tensor of a list of arrays between training steps",
        STEPS_ON_CPU,
        facts={"warnings": [f"train.py:31: {_LIST}"], "user_files": ["train.py"]}
        | run_of({"step": (2.0, 200), "long": (2.0, 20)}, sample("step", 80, 40, hits=40), _ROLLOUT),
        saves_us="unknown",
        says=("at train.py:31, a line that takes 50 % of the run",),
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
        near_miss=True,
    ),
    Example("no warning", STEPS_ON_CPU, facts={"warnings": []}),
    Example("a bare trace does not tell", STEPS_ON_CPU, near_miss=True, skipped="not captured by `advisor run`"),
]
