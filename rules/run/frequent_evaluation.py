"""Evaluation takes a large part of the run.

## What it looks at
The time between training steps in which the model processes batches without training on them, or runs in evaluation
mode; and lines of the training step itself at which a model runs in evaluation mode that trains at other lines: its
share of the run, how often it happens, and at which line. Capture times the whole run, not only the profiled steps.
What runs in every training step may be what the step trains on, such as the sequences or actions that a policy
generates: it is reported only if `advisor run` observed that no op of the training reads its results.

## Why it costs time
While the model is evaluated, it does not train. An evaluation over the whole validation set every few steps always
takes the full time, even if little has changed since the last one.

## How to fix it
Evaluate less often: at an interval at which evaluation takes about a twentieth of the run. In between, a part of the
validation set shows the trend. Evaluate with `torch.no_grad()`, larger batches, and workers that read ahead.

## When to leave it
Where each evaluation decides something: early stopping after few steps, the search for a learning rate. A short trial
of a training that will be evaluated as often, but trains for longer between two evaluations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from advisor.api import Example, Finding, Fix, RankRecord, RunPart, SideLines, WatchedRun, duration

from ..shared._examples import STEPS_ON_CPU, node, observed, op, two_steps
from ..shared._places import place
from ..shared._run_examples import TRAINS, run_of, sample
from ..shared._run_parts import each_hour, finding_of, is_known, saving_of, watched
from ..shared._words import count, percent, plural
from ._intervals import EVALUATIONS, happens_at, places_of, worded

# Rounded up to a number that people choose: 1, 2 or 5 times a power of ten.
_ROUND = (1, 2, 5, 10)
_NEAR = 0.1


def check(
    run: WatchedRun,
    record: RankRecord | None,
    sides: SideLines | None,
    *,
    min_share: float = 0.1,  # of the loop, for evaluations within an epoch: the fix leaves a twentieth
    min_share_of_epochs: float = 0.25,  # for one per epoch: a validation set of a fifth, which is common, takes less
    left_share: float = 0.05,  # of the loop, spent on evaluation at the interval that the fix suggests
) -> Iterator[Finding]:
    part = run.loop.get("evaluation")
    if part is None:
        return
    part = _counted(part, run, sides)
    if not part.times or part.times < 2:
        return
    # Without a loader what is an epoch is not known; then it is each turn of the loop around the loop that trains.
    epochs = run.epochs or _renewed(record)
    by_epoch = part.times <= epochs + 1 or (not epochs and bool(part.lines) and part.lines[0].outside)
    if not is_known(part, run, min_share_of_epochs if by_epoch else min_share):
        return
    each_us, every = part.us / part.times, _customary(run.steps / part.times)
    unread = sides is not None and any(sides.has(line.source, line.inner) for line in part.lines)
    if not by_epoch and round(every) <= 1 and not unread:
        return
    fewer = part.us / (left_share / (1 - left_share) * (run.loop_us - part.us))
    interval = _rounded(fewer if by_epoch else fewer * every)
    kept = (1 if by_epoch else every) / interval
    saved = (1 - kept) * part.us / run.loop_us
    where, at = places_of(part, record, EVALUATIONS), happens_at(part, record, EVALUATIONS)
    now, then = max(round(every), 1), _rounded(fewer * every) if by_epoch else interval
    often = "at the end of each epoch" if by_epoch else _often(round(every))
    yield finding_of(
        run,
        part,
        f"Evaluation{place(at)} takes {percent(part.us / run.loop_us)} of {watched(run)}: "
        f"{duration(each_us)} each time, {often}; evaluating every {plural(interval, 'epoch' if by_epoch else 'step')} "
        f"would save {percent(saved)} of the run, {each_hour(saved)}.",
        saving_of(run, part, 1 - kept, 1 - kept, "the time of evaluations between training steps, at that interval"),
        worded(_fix(interval, now, by_epoch), record, EVALUATIONS, run, now, then),
        "medium",  # how often the validation loss is wanted is the user's to say
        where,
    )


def _counted(part: RunPart, run: WatchedRun, sides: SideLines | None) -> RunPart:
    """With how often it happens: too short to be sampled twice, but in every profiled step, it does so in every one."""
    if part.times or sides is None or not part.lines:
        return part
    always = all(sides.in_every_step(line.source, line.inner) for line in part.lines)
    return replace(part, times=run.steps) if always else part


def _renewed(record: RankRecord | None) -> int:
    """Epochs of a training whose loader is made again for each, so that none is seen to be exhausted."""
    every = [one for one in record.loaders if (one.batches_per_iterator or 0) > 1] if record else []
    return max((one.iterators or 0 for one in every), default=0)


def _often(every: int) -> str:
    return f"about every {count(every)} training steps" if every > 1 else "in every training step"


def _customary(steps: float) -> float:
    """A number of steps as people choose it, where one is near: the profiled steps are not among those watched."""
    power = 10.0 ** math.floor(math.log10(max(steps, 1)))
    near = [power * one for one in (1, 2, 2.5, 5, 10) if abs(power * one / steps - 1) <= _NEAR]
    return near[0] if near else steps


def _rounded(number: float) -> int:
    power = round(10.0 ** math.floor(math.log10(max(number, 1))))
    return next(power * one for one in _ROUND if power * one >= number)


def _fix(interval: int, every: int, by_epoch: bool) -> Fix:
    if by_epoch:
        return Fix(
            f"Evaluate every {plural(interval, 'epoch')}",
            "semantics",
            "evaluate(model, val_loader)",
            f"if epoch % {interval} == {interval - 1}:\n    evaluate(model, val_loader)",
        )
    return Fix(
        f"Evaluate every {count(interval)} steps",
        "semantics",
        f"if step % {every} == 0:\n    evaluate(model, val_loader)",
        f"if step % {interval} == 0:\n    evaluate(model, val_loader)",
    )


def _facts(evaluation_s: float, times: int, epochs: int, kind: str = "between", **more: Any) -> dict[str, Any]:
    """A run of 600 steps in 60 s, left for evaluations."""
    evaluates = sample(kind, 88, times, "forward", "untrained", inner=["train.py", 40, "evaluate"])
    return run_of({"step": (60.0, 600), kind: (evaluation_s, times)}, TRAINS, evaluates | more, epochs=epochs)


def _made_again(evaluation_s: float) -> dict[str, Any]:
    """An evaluation after each of ten epochs, for which the loader is made again."""
    made_again = {"iterators": 10, "batches_per_iterator": 60.0}
    return _facts(evaluation_s, 10, 0) | {"loaders": [made_again]}


def _fitted(evaluation_s: float, epochs: int) -> dict[str, Any]:
    """Steps of a library's `fit` in line 80, the last of each epoch as much longer as its evaluation takes."""
    trains = sample("step", 80, 300, "backward", package="fits")
    evaluates = sample("long", 80, epochs, "forward", "eval_mode", "untrained", package="fits")
    kinds = {"step": (60.0, 600 - epochs), "long": (evaluation_s, epochs)}
    return run_of(kinds, trains, evaluates, epochs=epochs, usual_us=0.0)


def _in_steps(*marks: str, sampled: int = 300) -> dict[str, Any]:
    """600 steps of 100 ms: two fifths of their samples stand in a model in evaluation mode."""
    trains, tests = sampled * 3 // 5, sampled * 2 // 5
    return run_of(
        {"step": (60.0, 600)},
        sample("step", 80, trains, "forward", hits=trains),
        sample("step", 91, tests, "forward", "eval_mode", *marks, hits=tests),
    )


# A trained layer with its loss, then one at line 91 without gradients, of which Python reads the mean.
_AT: dict[int, dict[str, Any]] = {line: {"Call stack": f"train.py({line}): <module>"} for line in (80, 81, 91)}
_TRAINS_AND_TESTS = two_steps(
    "[F   ][L ][X ][Z   ][E    ][M ][I]",
    F=op("linear", [64, 64], [64, 64], number=1, **_AT[80]),
    L=op("l1_loss", [64, 64], [64, 64], number=2, **_AT[81]),
    X=node(2),
    Z=node(1),
    E=op("linear", [64, 64], [64, 64], **_AT[91]),
    M=op("mean", [64, 64], **_AT[91]),
    I=op("item", [], **_AT[91]),
)


def _read_by(training: bool) -> dict[str, Any]:
    """What the ops of such a step read: the mean is a number of Python's, or the next step's loss reads it."""
    waits = [[], [1], [], [1], [1]]
    return observed("linear l1_loss linear mean item", waits, leaving=[], onward=[(3, 1)] if training else [])


EXAMPLES = [
    Example(
        "the whole validation set every 20 steps",
        STEPS_ON_CPU,
        facts=_facts(40.0, 30, 2),
        saves_us=(55_000, 65_000),
        says=("train.py:88", "40 %", "every 20 training steps"),
        fixes=("every 500 steps",),
    ),
    Example(
        "every 20 steps, by an `if`, which is the line to change",
        STEPS_ON_CPU,
        facts=_facts(40.0, 30, 2, guard=86),
        saves_us=(55_000, 65_000),
        says=("train.py:86", "40 %"),
    ),
    Example(
        "the same with the line that gives the number",
        STEPS_ON_CPU,
        facts=_facts(40.0, 30, 2, guard=86)
        | {"settings": {"set_at": {"evaluation_every": {"file": "train.py", "line": 9}}}},
        saves_us=(55_000, 65_000),
        says=("train.py:86", "40 %"),
    ),
    Example(
        "after each epoch, whose loader is made again",
        STEPS_ON_CPU,
        facts=_made_again(40.0),
        saves_us=(50_000, 65_000),
        says=("at the end of each epoch",),
    ),
    Example("a fifth of such a run", STEPS_ON_CPU, None, _made_again(15.0), near_miss=True),
    Example(
        "every 20 steps, by an argument of the framework that runs the loop",
        STEPS_ON_CPU,
        facts=_facts(40.0, 30, 2)
        | {"settings": {"framework": "lightning", "set_at": {"evaluation_every": {"file": "train.py", "line": 12}}}},
        saves_us=(55_000, 65_000),
        says=("train.py:12", "40 %"),
        fixes=("every 500 steps",),
    ),
    Example(
        "a validation set as large as the training set, after each epoch",
        STEPS_ON_CPU,
        facts=_facts(30.0, 10, 10),
        saves_us=(40_000, 50_000),
        says=("33 %", "at the end of each epoch"),
        fixes=("every 10 epochs",),
    ),
    Example(
        "after each epoch, in a library's loop: one line trains and evaluates",
        STEPS_ON_CPU,
        facts=_fitted(30.0, 10),
        saves_us=(40_000, 50_000),
        says=("train.py:80", "33 %", "at the end of each epoch"),
    ),
    Example("the same, a tenth of the run", STEPS_ON_CPU, facts=_fitted(7.0, 10), near_miss=True),
    Example(
        "a model in evaluation mode between steps, without a loader",
        STEPS_ON_CPU,
        facts=_facts(40.0, 30, 0, "long", marks=["forward", "eval_mode"]),
        saves_us=(55_000, 65_000),
        says=("40 %",),
    ),
    Example(
        "the test set in every step",
        _TRAINS_AND_TESTS,
        facts=_in_steps("also_trained") | _read_by(training=False),
        saves_us=(25_000, 45_000),
        says=("train.py:91", "in every training step"),
        fixes=("every 20 steps",),
    ),
    Example(
        "the same in steps so short that few are sampled",
        _TRAINS_AND_TESTS,
        facts=_in_steps("also_trained", sampled=50) | _read_by(training=False),
        saves_us=(15_000, 65_000),
        says=("train.py:91", "in every training step"),
    ),
    Example(
        "after each pass over batches that no loader gives, a sixth of the run",
        STEPS_ON_CPU,
        facts=_facts(12.0, 30, 0, "long", marks=["forward", "eval_mode"], outside=True),
        near_miss=True,
    ),
    Example(
        "what a model makes in evaluation mode in every step, on which the next one trains",
        _TRAINS_AND_TESTS,
        facts=_in_steps("also_trained") | _read_by(training=True),
        near_miss=True,
    ),
    Example(
        "the same where it was not observed what reads its results",
        STEPS_ON_CPU,
        facts=_in_steps("also_trained"),
        near_miss=True,
    ),
    Example("a teacher in every step", STEPS_ON_CPU, facts=_in_steps(), near_miss=True),
    Example("once an epoch, a tenth of the run", STEPS_ON_CPU, facts=_facts(7.0, 6, 6), near_miss=True),
    Example(
        "a model that plays between steps, in training mode",
        STEPS_ON_CPU,
        facts=_facts(40.0, 30, 0, "long", marks=["forward"]),
        near_miss=True,
    ),
    Example("every 20 steps, a hundredth of the run", STEPS_ON_CPU, facts=_facts(0.6, 30, 2)),
    Example("a bare trace", STEPS_ON_CPU, skipped="was not captured"),
]
