"""Graph breaks split the compiled model into several regions.

## What it looks at
The reasons for which torch.compile ended a graph, as capture recorded them, and how many compiled regions run in a
step. A trace alone cannot distinguish regions of one model from several models.

## Why it costs time
Between two regions the step is back in Python: results go through memory instead of through one fused kernel, each
region checks its guards, and no CUDA graph can cover the whole. Typical causes of a graph break are a `print`, an
`.item()` or a branch on a tensor's value.

## How to fix it
`torch.compile(model, fullgraph=True)` raises an error at the first break. Move logging out of the model, compute
on tensors (`torch.where`) instead of branching on a value, and move what must stay in Python to the beginning or the
end of the model.

## When to leave it
A break between two large parts, or in code that runs rarely.
"""

from __future__ import annotations

from collections.abc import Iterator

from advisor.api import Ev, Example, Finding, Fix, Missing, RankRecord, Steps, Trace, draw

from ..shared._words import count, plural
from ._compiled import graph_breaks, marks_regions

CONFIRMED = "real trace: torch.compile on a CPU, a model with a print and an .item() in the middle"

_REGION = "Torch-Compiled Region"


def check(
    trace: Trace,
    steps: Steps,
    record: RankRecord | None,
    *,
    min_pieces: float = 2.0,  # one region a step is a whole model: a break elsewhere does not split it
) -> Iterator[Finding]:
    if record is None:
        raise Missing("a trace does not contain the reasons of graph breaks; capture the script with `advisor run`")
    if steps.labels == ("window",):
        raise Missing("no steps were found, so the number of compiled regions per step is not known")
    breaks = graph_breaks(record)
    events = trace.events
    if breaks and not marks_regions(record):
        raise Missing(
            f"a graph breaks because of `{next(iter(breaks))}`, but torch before 2.6 records no compiled regions, so "
            "how many run in a step is not known; `torch.compile(model, fullgraph=True)` stops at the first break"
        )
    pieces = float((events.named(_REGION) & (steps.step_of(events.start_ns) >= 0)).sum()) / steps.count
    if not breaks or pieces < min_pieces:
        return
    reason = next(iter(breaks))
    more = f" and {plural(len(breaks) - 1, 'more reason')}" if len(breaks) > 1 else ""
    yield Finding(
        message=f"Compiled code runs in {count(pieces)} regions a step: the graph breaks because of `{reason}`{more}.",
        # What one piece would save nobody can say before it is one.
        saving=None,
        facts={"pieces": pieces, "reasons": len(breaks), "breaks": sum(breaks.values())},
        fix=Fix(
            "Find the graph breaks with `fullgraph=True` and remove them",
            "numerics",
            "net = torch.compile(model)",
            "net = torch.compile(model, fullgraph=True)  # stops with the line of the first break",
        ),
        at_most="medium",
    )


_PIECE = Ev("Torch-Compiled Region: 0/0", launches="")
_SECOND = Ev("Torch-Compiled Region: 2/0", launches="")
_REASONS = {"Failed to trace builtin operator\n  Explanation: Dynamo does not know `print`.": 4}

EXAMPLES = [
    Example(
        "a print in the middle of the model",
        draw(
            "step [1                 ][2                 ]\ncpu  [R  ][S  ][B      ] [R  ][S  ][B      ]",
            us=1000,
            R=_PIECE,
            S=_SECOND,
        ),
        facts={"compile": {"graph_breaks": _REASONS}},
        saves_us="unknown",
        says=("2 regions a step", "Failed to trace builtin operator"),
    ),
    Example(
        "two compiled models, and no break",
        draw(
            "step [1                 ][2                 ]\ncpu  [R  ][S  ][B      ] [R  ][S  ][B      ]",
            us=1000,
            R=_PIECE,
            S=_SECOND,
        ),
        facts={"compile": {"graph_breaks": {}}},
        near_miss=True,
    ),
    Example(
        "a break before the model, which is one piece",
        draw("step [1            ][2            ]\ncpu  [R  ][B      ] [R  ][B      ]", us=1000, R=_PIECE),
        facts={"compile": {"graph_breaks": _REASONS}},
        near_miss=True,
    ),
    Example(
        "no torch.compile",
        draw("step [1        ][2        ]\ncpu  [F  ][B   ][F  ][B   ]", us=1000),
        facts={"compile": {}},
    ),
]
