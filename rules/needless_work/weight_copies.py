"""All weights are copied, or updated in too many ops, within the step.

## What it looks at
Sequences of copies and clones, outside of the optimizer and the loader, that cover every parameter of the model by its
shape: deep copies of `state_dict()`, snapshots, a target network that is overwritten. On a device, their work and the
time for which it waits for them count; copies to the host are reported by the rule frequent-checkpoints. Where
gradients come from `torch.autograd.grad`, a copy may be what the script trains: then only copies of twice as much,
with weights that are not trained, count.

On a CPU also sums of weights, outside of the forward pass and the optimizer, that take several long ops for each
tensor: a moving average that is made as new tensors, or in two ops. A loop of short ops is reported by the rule
tensor-loop.

## Why it costs time
A copy reads and writes every weight, into memory that is newly allocated each time: about as much traffic as the
optimizer's own step. In addition, Python iterates over the whole dictionary. An average in the ops `mul`, `mul`,
`add` and `copy_` goes through memory nine times, where `lerp_` does so three times.

## How to fix it
Copy when it is needed: at the end of an epoch, or when the validation has improved, not after each step. For an
average of the weights use `torch._foreach_lerp_`, as `torch.optim.swa_utils.AveragedModel` does with
`multi_avg_fn=get_ema_multi_avg_fn(decay)`.

## When to leave it
Algorithms that need the weights of every step, such as those that average or compare them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    GRADIENT_STORE,
    Device,
    Ev,
    Example,
    Finding,
    Fix,
    Intervals,
    Lines,
    LinesTrace,
    Price,
    StateReads,
    calm,
    data_size,
    draw,
    edits,
    starts_in,
    total,
    union,
    where_read,
)

from ..shared._device_waits import to_host, waiting_us
from ..shared._places import first_line, place
from ..shared._words import count, each_step, often
from ._weight_passes import weight_passes

CONFIRMED = "measured pair on a CPU: a deep copy of the state after each step against one at the end of the epoch"

_PASSES = (
    "low: one op for each tensor takes its share of the bytes, and a quarter more, as measured; high: at the rate of "
    "the quickest of these ops, without allocating memory"
)
_IN_PLACE = Fix(
    "Update the tensors in place, each in one op",
    "numerics",
    "new = {k: decay * v + (1 - decay) * weights[k] for k, v in ema.state_dict().items()}\nema.load_state_dict(new)",
    "torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 1 - decay)\n"
    "# one by one: average.lerp_(p, 1 - decay), p.add_(p.grad, alpha=-lr)",
)
# Of the weights' bytes: most of them, and at least as much again of weights that are not trained.
_MOST_OF, _FAR_MORE = 0.8, 2.0


def check(
    price: Price,
    device: Device,
    lines: Lines,
    recorded: LinesTrace | None,
    state: StateReads,
    *,
    min_share: float = 0.02,  # a line to move; below 2 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    if not price.on_device and device.kind != "none":
        return
    yield from _copied(price, lines, recorded, state, min_share)
    if not price.on_device:
        yield from _in_passes(price, lines, state, min_share)


def _copied(
    price: Price, lines: Lines, recorded: LinesTrace | None, state: StateReads, min_share: float
) -> Iterator[Finding]:
    """Copies of all weights."""
    trace, steps = price.ops.trace, price.ops.steps
    # Most of the weights' bytes: what is smaller is a copy of something else that has as many tensors. Where a copy may
    # be what is trained, as in meta-learning, it is needed; what is copied beside it is not.
    least_bytes = (_MOST_OF if state.stored else _FAR_MORE) * state.parameter_bytes
    runs = [run for run in state.runs if run.copied_bytes >= least_bytes]
    if price.on_device:
        # What goes to the host is a checkpoint's, and another rule's.
        runs = [run for run in runs if 2 * to_host(price, run) < state.parameter_bytes]
    if not runs:
        return
    spans = calm(state.spans(runs))
    claims = () if price.on_device else ("other_ops", "host")
    spent_us = _on_device_us(price, spans) if price.on_device else steps.per_step_us(total(spans))
    spent_us = min(spent_us, price.measured_us(claims))
    gone = least = edits.remove_time(spans)
    how = "the step without the copy, if no step needs it; high: if the profiler slowed the rest of the step more"
    if not state.stored:
        beside = union(*np.array([one for run in runs for one in run.beside], np.int64).reshape(-1, 2).T)
        least = edits.remove_time(beside)
        how = "low: the step without the copies of what is not trained; high: without all of them, and if the profiler "
        how += "slowed the rest of the step more"
    if price.on_device:
        how = "low: nothing, if other work hides the copies; high: their work, and the device's wait for them"
        saving = price.saving([least], [gone], claims, how, model_us=(0.0, spent_us), bound_us=spent_us)
    else:
        saving = price.saving([least], [gone], claims, how)
    if saving.high_us < min_share * price.scale.step_us:
        return
    where = where_read(trace, steps, lines, recorded, runs[0])
    each = sum(run.copied_bytes for run in runs) / len(runs)
    yield Finding(
        message=(
            f"All weights are copied {often(len(runs) / steps.count)}{place(where)}, {data_size(each)} each time: "
            f"{each_step(price, spent_us)}."
        ),
        saving=saving,
        where=(where,) if where else (),
        facts={"copies": len(runs) / steps.count, "bytes": each, "copy_us": spent_us},
        fix=Fix(
            "Copy the weights only when they are needed, not in every step",
            "exact",
            "for inputs, targets in loader:\n    ...\n    weights = copy.deepcopy(model.state_dict())",
            "for inputs, targets in loader:\n    ...\nweights = copy.deepcopy(model.state_dict())",
        ),
        claims=claims,
        at_most="medium",  # an algorithm may need them
    )


def _in_passes(price: Price, lines: Lines, state: StateReads, min_share: float) -> Iterator[Finding]:
    """Sums of weights in several ops, each of which goes through memory."""
    work = weight_passes(price, state)
    if work is None:
        return
    claims = ("other_ops", "host", "forward")
    least, most = work.stays(price)
    low, high = ([edits.scale_time(work.spans, stays)] for stays in (most, least))
    saving = price.divided(low, high, claims, _PASSES)
    if saving.high_us < min_share * price.scale.step_us:
        return
    where = first_line(lines, work.sums)
    spent_us = min(price.ops.steps.per_step_us(total(work.spans)), price.measured_us(claims))
    yield Finding(
        message=(
            f"Weights are averaged or updated{place(where)} in {count(work.calls)} ops a step that read and write "
            f"{data_size(4 * work.passes / price.ops.steps.count)}, while one op in place for each tensor reads and "
            f"writes {data_size(4 * work.needed / price.ops.steps.count)}: {each_step(price, spent_us)}."
        ),
        saving=saving,
        where=(where,) if where else (),
        facts={"ops": work.calls, "passes_us": spent_us, "needed": work.needed / work.passes},
        fix=_IN_PLACE,
        claims=claims,
        at_most="medium",  # something else may hold the tensors that are made
    )


def _on_device_us(price: Price, spans: Intervals) -> float:
    """Device work that the loop launches in these spans, and the time for which the device waits for it."""
    events, ops = price.ops.events, price.ops.outermost
    return price.spent_us(ops[starts_in(events.start_ns[ops], spans)]) + waiting_us(price, spans)


_STORED = Ev(GRADIENT_STORE, dims=[[800, 800]])
_STORED_2 = Ev(GRADIENT_STORE, dims=[[800]])


def _clone(*shape: int) -> Ev:
    return Ev("aten::clone", dims=[list(shape)], dtypes=["float"])


_STEPS = """
    step   [1                                     ][2                                     ]
    cpu    [F  ][B       ][O ] [C     ][D ]         [F  ][B       ][O ] [C     ][D ]
    cpu         [S  ][T ]                                [S  ][T ]
    """
_ON_DEVICE = """
    step   [1                                     ][2                                     ]
    cpu    [F  ][B       ][O ] [C     ][D ]         [F  ][B       ][O ] [C     ][D ]
    cpu         [S  ][T ]                                [S  ][T ]
    gpu 7   [K              ]      [M      ]         [K              ]      [M      ]
    """
_MOVED, _SMALL = replace(_clone(800, 800), launches="memcpy"), replace(_clone(800), launches="")
_WITHIN = Ev("Memcpy DtoD (Device -> Device)", "gpu_memcpy", bytes=2_563_200)
_TO_HOST = Ev("Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", bytes=2_563_200)
_REST: dict[str, Any] = {"S": _STORED, "T": _STORED_2}


def _sum(name: str, *dims: list[int]) -> Ev:
    return Ev(f"aten::{name}", dims=[*dims], dtypes=["float"] * len(dims))


def _of(weight: list[int]) -> dict[str, Any]:
    """A moving average: two products (M, N), their sum (A), and a copy of it (C)."""
    product, pair = _sum("mul", weight, []), [weight, weight]
    return {"M": product, "N": product, "A": _sum("add", *pair, []), "C": _sum("copy_", *pair, [])}


_AVERAGED = """
    step   [1                                                 ][2                                                 ]
    cpu    [F  ][B       ][O ][M      ][N      ][A      ][C  ]  [F  ][B       ][O ][M      ][N      ][A      ][C  ]
    cpu         [S  ][T ]                                            [S  ][T ]
    """
_AVERAGE = _of([800, 800])

# Gradients by torch.autograd.grad: the optimizer alone shows what the weights are.
_ADAPTED = """
    step   [1                                     ][2                                     ]
    cpu    [F  ][B       ][O    ] [C     ][D ][E ]  [F  ][B       ][O    ] [C     ][D ][E ]
    cpu                    [U][V]                                  [U][V]
    """
_UPDATED: dict[str, Any] = {
    "U": Ev("aten::add_", dims=[[800, 800], [800, 800], []]),
    "V": Ev("aten::add_", dims=[[800], [800], []]),
}

EXAMPLES = [
    Example(
        "a snapshot after each step",
        draw(_STEPS, us=100, C=_clone(800, 800), D=_clone(800), **_REST),
        saves_us=(900, 1400),
        says=("All weights are copied once a step",),
    ),
    Example(
        "a snapshot after each step on a device, which waits for it",
        draw(_ON_DEVICE, us=100, C=_MOVED, D=_SMALL, M=_WITHIN, **_REST),
        saves_us=(0, 1500),
        says=("All weights are copied once a step",),
    ),
    Example(
        "a copy to the host, which is a checkpoint's",
        draw(_ON_DEVICE, us=100, C=_MOVED, D=_SMALL, M=_TO_HOST, **_REST),
        near_miss=True,
    ),
    Example("tensors of other shapes", draw(_STEPS, us=100, C=_clone(64, 800), D=_clone(64), **_REST), near_miss=True),
    Example(
        "an average of the weights computes, it does not copy",
        draw(
            _STEPS,
            us=100,
            C=Ev("aten::lerp_", dims=[[800, 800], [800, 800], []]),
            D=Ev("aten::lerp_", dims=[[800], [800], []]),
            **_REST,
        ),
        near_miss=True,
    ),
    Example(
        "an average of the weights is made as a new tensor, which is then copied",
        draw(_AVERAGED, us=100, **_AVERAGE, **_REST),
        saves_us=(1800, 3650),
        says=("averaged or updated", "4 ops a step", "23 MB", "7.68 MB"),
    ),
    Example(
        "weights times weights are no average: one op does not replace them",
        draw(_AVERAGED, us=100, **(_AVERAGE | {"M": _sum("mul", [800, 800], [800, 800])}), **_REST),
        near_miss=True,
    ),
    Example(
        "activations of another shape are scaled and added",
        draw(_AVERAGED, us=100, **_of([64, 800]), **_REST),
        near_miss=True,
    ),
    Example(
        "a learner is copied for each task with a frozen table that is most of it",
        draw(_ADAPTED, us=100, C=_clone(20000, 64), D=_clone(800, 800), E=_clone(800), **_UPDATED),
        saves_us=(750, 2400),
        says=("7.68 MB",),
    ),
    Example(
        "a learner is copied for each task, its trained weights alone",
        draw(_ADAPTED, us=100, C=_clone(800), D=_clone(800, 800), E=_clone(800), **_UPDATED),
        near_miss=True,
    ),
    Example(
        "no copies",
        draw(
            """
            step   [1                                     ][2                                     ]
            cpu    [F  ][B       ][O ]                      [F  ][B       ][O ]
            cpu         [S  ][T ]                                [S  ][T ]
            """,
            us=100,
            **_REST,
        ),
    ),
]
