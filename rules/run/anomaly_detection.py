"""Autograd's anomaly detection is on.

## What it looks at
Whether `torch.autograd.set_detect_anomaly(True)` or `detect_anomaly()` was active in the profiled steps, as
capture recorded it, and what formatting a stack takes in this process: for itself, for each frame, for each file that
frames are of. Nodes of the graph are counted in the trace: those of ops, and one for each parameter.

## Why it costs time
Each forward op stores a stack trace in case its gradient becomes invalid, so does the node that each parameter gets
in each step, and each backward op checks its results for NaN. Training becomes several times slower, not a few percent.

## How to fix it
Remove it, or make it an option that is off by default. Checking `torch.isfinite(loss)` every N steps detects a NaN as
well.

## When to leave it
While debugging a NaN: the stack trace names the forward op whose gradient became invalid.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import (
    AUTOGRAD_NODE,
    GRADIENT_STORE,
    Category,
    Ev,
    Example,
    Finding,
    Fix,
    Ints,
    Missing,
    Price,
    RankRecord,
    StepOps,
    Treatment,
    constant,
    draw,
    duration,
)

from ..shared._examples import STEPS_ON_CPU
from ..shared._places import set_at
from ..shared._side_effect_factors import SIDE_EFFECTS
from ..shared._words import percent

CONFIRMED = "measured pair on a CPU: twelve residual blocks with and without anomaly detection"

# What the engine runs on the gradients of each node, beside the node's own work.
_CHECKS = ("aten::isnan", "aten::_is_any_true", "aten::item", "aten::any")
# Ops that only look at a tensor differently: without a stack trace to store, one takes a few µs.
_VIEWS = ("aten::t", "aten::transpose", "aten::view", "aten::permute", "aten::select", "aten::unsqueeze", "aten::slice")
_VIEW_US = constant("calls.view_us").value
# Of ops that work on data, too, the shortest tenth: what these take beyond being called is storing a stack trace.
_SHORTEST, _OP_US = 0.1, constant("calls.recorded_op_us").value
# The node of a parameter, whose name the trace has behind that of the engine's call.
_LEAF = f"{AUTOGRAD_NODE}: {GRADIENT_STORE}"
# What a stack trace takes by what capture times: functions of the script are longer, its text is kept and freed.
_STORED = constant("anomaly.stored_per_formatted").range
# Ops within ops share a sequence number; more of them are ops that recorded no node.
_MOST_NESTED = 6


def check(record: RankRecord, price: Price) -> Iterator[Finding]:
    on = record.settings.anomaly_detection
    if on is None:
        raise Missing("capture could not see whether anomaly detection was on")
    if not on:
        return
    scale, deprofiled = price.scale, price.deprofiled
    checks_us, stored_us = _costs(price.ops)
    saving = None
    traced = _stack_traces_us(record, price.ops)
    if checks_us and not price.on_device:
        # Stack traces and checks are work of their own, which the profiler does not make longer.
        spent = deprofiled.in_part("backward", checks_us, python_us=checks_us)
        if traced:
            stored_us = sum(traced) / 2
            low_us, high_us = deprofiled.us(spent)
            how = "the checks in the backward pass, and a stack trace for each node as long as one takes here"
            saving = price.of_us(low_us + traced[0], (high_us + traced[1]) * SIDE_EFFECTS, how)
        else:
            least, most = deprofiled.share(spent + deprofiled.in_part("rest", stored_us, python_us=stored_us))
            how = "the checks in the backward pass, and for each op the time of a view op here beyond a few µs"
            saving = price.shares((least + most) / 2, most, how, times=SIDE_EFFECTS)
    told = f": {percent((saving.low_us + saving.high_us) / 2 / scale.step_us)} of their time" if saving else ""
    yield Finding(
        message=(
            f"Anomaly detection was on in these steps of {duration(scale.step_us)}: each op stores a stack trace and "
            f"each gradient is checked for invalid numbers{told}."
        ),
        saving=saving,
        where=(*set_at(record.settings, "detect_anomaly"), *set_at(record.settings, "anomaly_detection")),
        facts={"anomaly_detection": True, "checks_us": checks_us, "stack_traces_us": stored_us},
        fix=Fix("Turn anomaly detection off", "exact", "torch.autograd.set_detect_anomaly(True)", "", _OFF),
        claims=("backward", "forward") if not price.on_device else (),
    )


_OFF = Treatment("calls", {"names": ["torch.autograd.set_detect_anomaly", "torch.autograd.detect_anomaly"]})


def _stack_traces_us(record: RankRecord, ops: StepOps) -> tuple[float, float] | None:
    """(low, high) time per step for the stack traces of all nodes, µs; None where capture timed none.

    Each parameter has a node of its own beside those of ops. It lives as long as the graph of a loss that somebody
    holds: where `loss` still names that of the step before, none is made again, else one in each step.
    """
    one, passes = record.settings.stack_trace, record.run.passes if record.run else []
    if one is None:
        return None
    trained = [each for each in passes if not each.evaluates]
    hits = sum(each.hits for each in trained)
    if not hits:
        return None
    frames = sum(each.hits * each.frames for each in trained) / hits
    files = sum(each.hits * each.files for each in trained) / hits
    events, nodes = ops.events, ops.events.named(AUTOGRAD_NODE)
    leaves = np.flatnonzero(ops.links.inside & nodes & events.named(_LEAF))
    made, again = _nodes(ops)[1], len(leaves) / ops.steps.count
    vitals = record.vitals
    queued_us, cpu_us = (vitals.loop_queued_us, vitals.loop_cpu_us) if vitals else (None, None)
    # A thread that waits for a core does so in all of its work alike.
    slowed = 1 + queued_us / cpu_us if queued_us and cpu_us else 1.0
    each_us = slowed * (one.us + one.frame_us * frames + one.file_us * files)
    return made * each_us * _STORED[0], (made + again) * each_us * _STORED[1]


def _nodes(ops: StepOps) -> tuple[Ints, float]:
    """Rows of ops of the forward pass that made a node; how many nodes they made per step."""
    events, nesting = ops.events, ops.nesting
    nodes = events.named(AUTOGRAD_NODE)
    made = ops.links.inside & events.of(Category.CPU_OP) & (events.sequence >= 0) & ~nesting.within(nodes)
    # A batch is put together of views without a gradient: those that repeat a sequence number are no node.
    known, which, times = np.unique(events.sequence[made], return_inverse=True, return_counts=True)
    return np.flatnonzero(made)[(times <= _MOST_NESTED)[which]], len(known) / ops.steps.count


def _costs(ops: StepOps) -> tuple[float, float]:
    """Checks of gradients, and storing of stack traces, µs per step; the second from the views among the ops."""
    events, nesting = ops.events, ops.nesting
    nodes = events.named(AUTOGRAD_NODE)
    counted = ops.links.inside
    parent = nesting.parent
    direct = (parent >= 0) & nodes[np.maximum(parent, 0)]
    checks = np.flatnonzero(counted & direct & events.exactly(*_CHECKS))
    recorded, number = _nodes(ops)
    views = recorded[events.exactly(*_VIEWS)[recorded]]
    if len(views):
        each_us = float(np.median(nesting.self_ns[views])) / 1e3 - _VIEW_US
    else:  # a script without views: the shortest of its ops
        outer = recorded[nesting.outermost[recorded]]
        each_us = float(np.quantile(events.dur_ns[outer], _SHORTEST)) / 1e3 - _OP_US if len(outer) else 0.0
    return ops.us(checks), max(each_us, 0.0) * number


_TRACED = {
    "settings": {"anomaly_detection": True, "stack_trace": {"us": 8.0, "frame_us": 1.5, "file_us": 3.0}},
    "run": {"passes": [{"place": {"file": "train.py", "line": 8}, "hits": 40, "frames": 14.0, "files": 5.0}]},
}


EXAMPLES = [
    Example(
        "left on after a hunt",
        STEPS_ON_CPU,
        facts={"settings": {"anomaly_detection": True}},
        saves_us="unknown",
        says=("stack trace",),
    ),
    Example(
        "the checks are in the trace",
        draw(
            """
            step   [1                   ][2                   ]
            cpu    [V ][F  ][B         ] [V ][F  ][B         ]
            cpu             [C    ]               [C    ]
            """,
            us=100,
            V=Ev("aten::t", args={"Sequence number": 7, "Fwd thread id": 0}),
            C="aten::isnan",
        ),
        facts={"settings": {"anomaly_detection": True}},
        saves_us=(880, 1300),
        says=("of their time",),
    ),
    Example(
        "a stack trace was timed: one for the op and one for the parameter, 44 µs each, beside 100 µs of checks",
        draw(
            """
            step   [1                   ][2                   ]
            cpu    [V ][F  ][B         ] [V ][F  ][B         ]
            cpu             [A    ]               [A    ]
            cpu             [C    ]               [C    ]
            """,
            us=100,
            V=Ev("aten::t", args={"Sequence number": 7, "Fwd thread id": 0}),
            A=f"{AUTOGRAD_NODE}: {GRADIENT_STORE}",
            C="aten::isnan",
        ),
        facts=_TRACED,
        saves_us=(600, 1000),
        says=("of their time",),
    ),
    Example("off", STEPS_ON_CPU, facts={"settings": {"anomaly_detection": False}}),
    Example("a bare trace does not tell", STEPS_ON_CPU, near_miss=True, skipped="not captured by `advisor run`"),
]
