"""Work between training steps takes a large part of the run.

## What it looks at
The time between training steps that is not evaluation, checkpointing or worker start-up: logging, plots and tables
every N steps, metrics and other work at the end of an epoch. Its share of the run, and at which line. Places that also
occur in ordinary training steps are not counted, nor are those at which a model runs in training mode: an agent that
plays, a generator that produces samples. `gc.collect()` belongs to the rule garbage-collection.

## Why it costs time
The loop waits for it. A figure that is drawn every ten steps, a metric over all predictions in Python, a table that is
rewritten at the end of each epoch do not show in the profile of a step, and may take as long as the training.

## How to fix it
Do it less often, on less data, or in another process. Collect numbers as tensors and convert them once; compute metrics
with torch instead of Python loops; write figures after the training from the numbers that were kept.

## When to leave it
If this work is the purpose of the run: data that is generated between steps, a simulation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from advisor.api import Example, Finding, Fix, RankRecord, RunLine, RunPart, WatchedRun, duration

from ..shared._examples import STEPS_ON_CPU
from ..shared._places import calls_collector, place, set_at
from ..shared._run_examples import run_of, sample
from ..shared._run_parts import each_hour, finding_of, is_known, lines_of, watched
from ..shared._words import percent
from ._evaluation_loaders import KEPT_LOADERS

_WHAT = {"logging": "Logging", "epoch_end": "Work at the end of an epoch", "other": "Work between training steps"}
_FIXES = {
    "logging": Fix("Log, print and draw less often", "exact", "if step % 10 == 0:", "if step % 1000 == 0:"),
    "epoch_end": Fix("Do less of it, or not in each epoch", "semantics"),
    "other": Fix("Do it less often, or in another process", "semantics"),
}


_LOADERS = ("train_dataloader", "val_dataloader")


def check(
    run: WatchedRun,
    record: RankRecord | None,
    *,
    min_share: float = 0.1,  # of the loop: ordinary logging and printing takes a hundredth
) -> Iterator[Finding]:
    for kind, what in _WHAT.items():
        part = _unexplained(run, kind, record)
        if part is None or not part.lines or not is_known(part, run, min_share):
            continue
        line = part.lines[0]
        below = f", most of it{place(line.inner)}" if line.inner else ""
        often = f", {duration(part.us / part.times)} each time" if part.times else ""
        # The number that makes Lightning call them again; without it they are called once.
        reloads = set_at(record.settings, "reloaded_loaders") if record and line.source.function in _LOADERS else ()
        yield finding_of(
            run,
            part,
            f"{what}{place(line.source)} takes {percent(part.us / run.loop_us)} of {watched(run)}{often}{below} "
            f"({each_hour(part.us / run.loop_us)}).",
            None,  # how much of it is needed, nobody knows who only saw how long it takes
            KEPT_LOADERS if reloads else _FIXES[kind],
            "medium",
            tuple(dict.fromkeys((*reloads, *lines_of(part)))),
        )


def _unexplained(run: WatchedRun, kind: str, record: RankRecord | None) -> RunPart | None:
    """A part without the lines of a model or the garbage collector; None where nothing is left."""
    part = run.loop.get(kind)
    if part is None:
        return None

    def explained(line: RunLine) -> bool:
        return line.source in run.forwards or calls_collector(line.source, record)

    lines = tuple(line for line in part.lines if not explained(line))
    left_us = part.us - sum(line.us for line in part.lines if explained(line))
    return replace(part, us=left_us, lines=lines) if lines else None


def _facts(
    work_s: float, *marks: str, package: str = "", line: int = 90, hits: int = 200, function: str = "main"
) -> dict[str, Any]:
    """A run of 400 steps in 40 s, 20 of which take longer."""
    more = {"inner": ["report.py", 12, "draw"], "package": package, "function": function}
    return run_of(
        {"step": (38.0, 380), "long": (2.0 + work_s, 20)},
        sample("step", 80, 150, "forward", hits=200),
        sample("long", line, 20, *marks, hits=hits, **more),
        usual_us=2e6,
        epochs=4,
    )


EXAMPLES = [
    Example(
        "a figure every 20 steps",
        STEPS_ON_CPU,
        facts=_facts(20.0, package="matplotlib"),
        saves_us="unknown",
        says=("Logging at train.py:90", "33 %", "report.py:12"),
        fixes=("less often",),
    ),
    Example(
        "a metric in Python after each epoch",
        STEPS_ON_CPU,
        facts=_facts(20.0, "epoch_end"),
        saves_us="unknown",
        says=("end of an epoch at train.py:90", "33 %"),
    ),
    Example(
        "Lightning asks for its loaders anew with each epoch",
        STEPS_ON_CPU,
        facts=_facts(20.0, function="train_dataloader")
        | {"settings": {"set_at": {"reloaded_loaders": {"file": "train.py", "line": 70}}}},
        saves_us="unknown",
        says=("train.py:90",),
        fixes=("Keep the loaders",),
    ),
    Example("an agent that plays", STEPS_ON_CPU, facts=_facts(40.0, "forward"), near_miss=True),
    Example(
        "the line calls the garbage collector, which has a rule of its own",
        STEPS_ON_CPU,
        facts=_facts(20.0) | {"settings": {"set_at": {"gc.collect": {"file": "train.py", "line": 90}}}},
        near_miss=True,
    ),
    Example("batches of other lengths", STEPS_ON_CPU, facts=_facts(4.0, line=80, hits=40), near_miss=True),
    Example("a line that is printed", STEPS_ON_CPU, facts=_facts(0.1)),
]
