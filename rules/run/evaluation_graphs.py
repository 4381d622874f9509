"""Evaluation records autograd graphs that no backward pass uses.

## What it looks at
Loops over a DataLoader without a training step, in the whole run: whether a variable of the loop holds another result
with a `grad_fn` after each batch, and how much of the run evaluation takes. In other loops, stack samples of a model in
evaluation mode: whether its layers are given tensors that want a gradient, though the model itself is given none.
Forward passes within the profiled steps are judged by the rule `evaluation-with-gradients`.

## Why it costs time
Where gradients are enabled, autograd records each op and keeps its inputs for a backward pass. That takes time, and
memory until the results are freed: a sum of losses (`total += loss`) keeps the graphs of all batches.
`model.eval()` does not change that.

## How to fix it
Evaluate under `torch.inference_mode()` or `torch.no_grad()`, as a decorator of the function or as a context around its
loop.

## When to leave it
Evaluations that need gradients with respect to the inputs, such as adversarial attacks or interatomic forces.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from advisor.api import NO_GRAD_SAVES, EvaluationCalls, Example, Finding, Fix, RankRecord, Source, WatchedRun

from ..shared._examples import STEPS_ON_CPU
from ..shared._places import place
from ..shared._run_examples import TRAINS, run_of, sample
from ..shared._run_parts import MOST_PLACES, finding_of, is_known, narrowed, saving_of, watched
from ..shared._words import percent
from ._evaluation_calls import facts_of_calls


def check(
    run: WatchedRun,
    record: RankRecord,
    calls: EvaluationCalls,
    *,
    min_share: float = 0.03,  # of the loop, in evaluation: one line to add, which saves at most four tenths of it
) -> Iterator[Finding]:
    part, at = run.loop.get("evaluation"), record.evaluation_graph
    if part is None or not is_known(part, run, min_share):
        return
    if at is not None:
        # A module's own text has no line that defines it.
        defined = (Source(at.file, at.first, at.function),) if at.function != "<module>" else ()
        where = (*defined, Source(at.file, at.line, at.function))
        said = f"`{at.name}`{place(where[-1])} has a `grad_fn` after each batch"
    else:
        recorded = [one for one in calls.calls if one.records and one.us >= min_share * run.loop_us]
        if not recorded:
            return
        part = narrowed(part, sum(one.us for one in recorded))
        places = (at for one in recorded for at in (one.source, one.defined, one.loop) if at)
        where = tuple(dict.fromkeys(places))[:MOST_PLACES]
        said = f"the model that is called{place(where[0])} is in evaluation mode with gradients enabled"
    found = finding_of(
        run,
        part,
        f"Evaluation records autograd graphs: {said}, and no backward pass follows. It takes "
        f"{percent(part.us / run.loop_us)} of {watched(run)}.",
        saving_of(
            run,
            part,
            0.0,
            NO_GRAD_SAVES,
            "from 0 to the largest share of a forward pass that `no_grad` saved in eleven models on a CPU",
        ),
        _FIX,
        "medium",
    )
    yield replace(found, where=where)


_FIX = Fix(
    "Evaluate under `torch.inference_mode()`",
    "exact",
    "def evaluate(model, loader):\n    model.eval()",
    "@torch.inference_mode()\ndef evaluate(model, loader):\n    model.eval()",
)

_AT = {"file": "train.py", "line": 44, "first": 40, "function": "evaluate", "name": "loss"}


def _facts(graph: dict[str, Any] | None, evaluation_s: float = 40.0) -> dict[str, Any]:
    """A run of 600 steps in 60 s, left for ten evaluations."""
    evaluates = sample("between", 88, 10, "forward", "untrained")
    run = run_of({"step": (60.0, 600), "between": (evaluation_s, 10)}, TRAINS, evaluates, epochs=10)
    return run | {"evaluation_graph": graph}


EXAMPLES = [
    Example(
        "an evaluation without no_grad",
        STEPS_ON_CPU,
        facts=_facts(_AT),
        # 40 s of evaluation are 66.7 ms for each of 600 steps.
        saves_us=(0, 31_000),
        says=("`loss` at train.py:44", "takes 40 %"),
        fixes=("inference_mode",),
    ),
    Example("an evaluation under no_grad", STEPS_ON_CPU, facts=_facts(None)),
    Example(
        "a loop without a DataLoader",
        STEPS_ON_CPU,
        facts=facts_of_calls(40.0, recorded=60),
        saves_us=(0, 31_000),
        says=("called at train.py:44", "takes 40 %"),
        fixes=("inference_mode",),
    ),
    Example("the same under no_grad", STEPS_ON_CPU, facts=facts_of_calls(40.0)),
    Example(
        "the gradient of an energy is taken there",
        STEPS_ON_CPU,
        facts=facts_of_calls(40.0, recorded=60, backward=True),
        near_miss=True,
    ),
    Example("a short one", STEPS_ON_CPU, facts=_facts(_AT, 0.5), near_miss=True),
    Example("a bare trace", STEPS_ON_CPU, skipped="was not captured"),
]
