"""A metric computes the value of each batch, although an epoch's is logged.

## What it looks at
Metrics that the training step calls: torchmetrics' `Metric` and `MetricCollection`, and the script's own modules with
`update()`, `compute()` and `reset()`, be they part of the model or held in a variable, an attribute or a dictionary.
The lines that call them, and what these lines take. The script's own count only where their call runs `compute()`.

## Why it costs time
Calling a metric computes its value for the batch and keeps what the value of the epoch needs. `update()` only does the
latter. For metrics that sort scores or compare all pairs (AUROC, average precision, SSIM) the value takes far longer.

## How to fix it
Call `metric.update(output, target)` in the step and `metric.compute()` once an epoch. With Lightning, pass the metric
itself to `self.log`, which computes and resets it at the end of the epoch.

## When to leave it
Where the value of each batch is looked at. Log it every few dozen steps then. A metric that is the loss, through which
the backward pass goes, is not reported, and neither is one that only a library's training loop calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from advisor.api import (
    BACKWARD,
    FORWARD,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    LineCosts,
    Lines,
    MetricModules,
    Price,
    Source,
    Stretch,
    callers_above,
    draw,
    duration,
)

from ..shared._places import place
from ..shared._words import percent


def check(
    price: Price,
    modules: MetricModules,
    costs: LineCosts | None,
    lines: Lines,
    *,
    min_share: float = 0.05,  # a number to look at less often: not worth it below 5 % of the step
) -> Iterator[Finding]:
    if price.on_device or costs is None:
        return  # on a device, what the line waits for there is not the metric's
    step_us = price.scale.step_us
    for call in modules.calls:
        path, at = call.name, call.source
        # What a library's loop calls is no line of the script's, and the one that calls the library takes all steps.
        work = _work(costs, at) if at not in lines.holders else ()
        least_us, most_us = price.deprofiled.us(sum(work[1:], work[0])) if work else (0.0, 0.0)
        us = min(most_us * call.called, step_us)
        if us < min_share * step_us:
            continue
        name = path.rpartition(".")[2]
        yield Finding(
            message=(
                f"`{name}`{place(at)} is called in each step, which computes the metric of each batch: it takes "
                f"up to {duration(us)} ({percent(us / step_us)} of the step)."
            ),
            saving=price.of_us(
                least_us * call.computed,
                us,
                "low: what `compute()` takes of the call, and `update()` the rest; high: `update()` takes no time",
            ),
            where=(at,),
            facts={"call_us": us, "metric": path},
            fix=_logged(name) if call.of_model else _updated(name),
            claims=("forward", "other_ops", "host"),
            at_most="medium",  # the value of each batch may be wanted
        )


def _work(costs: LineCosts, at: Source) -> tuple[Stretch, ...]:
    """What a line takes, and what the lines of the script's own metric take that it calls."""
    called = costs.callers
    place = at.file, at.line
    return tuple(line.work for line in costs.lines if place in (own := line.source.place, *callers_above(own, called)))


_TITLE = "Call `update()` in the step, and `compute()` once an epoch"


def _logged(name: str) -> Fix:
    """Of a module of Lightning, whose `log` computes the value of the epoch."""
    return Fix(
        _TITLE,
        "exact",
        f'self.log("{name}", self.{name}(output, target), on_step=False, on_epoch=True)',
        f'self.{name}.update(output, target)\nself.log("{name}", self.{name}, on_step=False, on_epoch=True)',
    )


def _updated(name: str) -> Fix:
    return Fix(
        _TITLE,
        "exact",
        f"{name}(output, target)  # in each step",
        f"{name}.update(output, target)  # in each step\nvalue = {name}.compute()  # once an epoch",
    )


def _profiled(sorts: int) -> Drawing:
    """Two steps: a layer, so many sorts in the metric, and the backward pass."""
    return draw(
        """
        step   [1                        ][2                        ]
        cpu    [F     ][S         ][B   ] [F     ][S         ][B   ]
        """,
        us=100,
        S=Ev("aten::sort", times=sorts, fill=0.9),
    )


def _recorded(sorts: int, passed: int = 4, loop: bool = False, computes: bool | None = None) -> Drawing:
    """The step whose lines and modules were recorded: the layer in line 30, the metric in line 31.

    passed: the number of the node that runs in the backward pass, 4 of the layer or 5 of the metric; loop: line 31
    calls a library that runs the loop; computes: the metric is no module of the model, and its call computes or not.
    """
    held = computes is not None
    called = "advisor:metric|scores|MetricCollection" if held else "advisor:module|train_auc|MultilabelAUROC"
    value = "advisor:computes|MultilabelAUROC" if computes else "advisor:call|torch.Tensor.sort"

    def line(number: int) -> Ev:
        return Ev(f"advisor:line|train.py|{number}|train", "user_annotation")

    more: dict[str, Any] = {} if loop else {"C": line(30), "E": line(33)}
    lanes = "[D                      ]" if loop else "[C     ][D         ][E   ]"
    return draw(
        f"""
        step   [1                        ]
        cpu    {lanes}
        cpu    [M     ][N         ][B   ]
        cpu    [F    ] [V        ]
        cpu            [S        ]
        """,
        us=100,
        D=line(31),
        **more,
        M=Ev("advisor:module|net|Linear", "user_annotation"),
        N=Ev(called, "user_annotation"),
        V=Ev(value, "user_annotation"),
        F=Ev(FORWARD.name, args={"Sequence number": 4}),
        S=Ev("aten::sort", times=sorts, fill=0.9, args={"Sequence number": 5}),
        B=Ev(BACKWARD.name, args={"Sequence number": passed}),
    )


def _facts(metric: bool = True) -> dict[str, object]:
    auc = {"path": "train_auc", "kind": "MultilabelAUROC", "parameters": 0}
    modules = [{"path": "net", "kind": "Linear", "parameters": 10}, auc | ({"metric": True} if metric else {})]
    return {"model": {"modules": modules}}


EXAMPLES = [
    Example(
        "an AUROC that is called on each batch",
        _profiled(20),
        facts=_facts(),
        lines=_recorded(20),
        saves_us=(0, 1_200),
        says=("`train_auc`", "train.py:31"),
        fixes=("self.train_auc.update(output, target)",),
    ),
    Example(
        "a module that is no metric", _profiled(20), None, _facts(metric=False), lines=_recorded(20), near_miss=True
    ),
    Example(
        "a collection of metrics outside of the model, in a variable",
        _profiled(20),
        facts=_facts(metric=False),
        lines=_recorded(20, computes=True),
        saves_us=(700, 1_200),
        says=("`scores`", "train.py:31"),
        fixes=("scores.update(output, target)",),
    ),
    Example(
        "the script's own metric whose call only updates",
        _profiled(20),
        None,
        _facts(metric=False),
        lines=_recorded(20, computes=False),
        near_miss=True,
    ),
    Example(
        "a metric that is the loss: the backward pass goes through it",
        _profiled(20),
        None,
        _facts(),
        lines=_recorded(20, passed=5),
        near_miss=True,
    ),
    Example(
        "a metric that a library's loop calls, which the script has one line for",
        _profiled(20),
        None,
        _facts(),
        lines=_recorded(20, loop=True),
        near_miss=True,
    ),
    Example("no line was recorded", _profiled(20), None, _facts(), skipped="no step recorded lines"),
]
