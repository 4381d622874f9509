"""Adam's update in Python of a library's own, without an optimizer of torch.optim: its ops alone tell of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from msgspec import Struct

from advisor.api import (
    AUTOGRAD_NODE,
    Category,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    Ints,
    Lines,
    Missing,
    Optimizer,
    OptimizerWork,
    Price,
    Settings,
    constant,
    draw,
    duration,
    shapes,
    starts_in,
    total,
)

from ..shared._words import count, percent
from ._fused_steps import fused_us

# The last op of Adam's update of a tensor: https://docs.pytorch.org/docs/stable/generated/torch.optim.Adam.html
_LAST = "aten::addcdiv_"
# Fewer tensors are no model whose update takes long.
_FEWEST = 10
# How many times faster fused=True is than PyTorch's own loop, the least and the most of both Adams.
_GAINS = [constant(f"optimizer.{name}_fused_gain").range for name in ("adam", "adamw")]
_GAIN = (min(low for low, _ in _GAINS), max(high for _, high in _GAINS))
_HOW = "this update less what fused=True took in measurements on a CPU, by number and size of the parameters"
# OptimWrapper: https://docs.fast.ai/optimizer.html#optimwrapper
_OF_TORCH = Fix(
    "Use `torch.optim.AdamW` with `fused=True` and the same settings (on a CPU: PyTorch 2.4 or later)",
    "numerics",
    "optimizer = Adam(parameters, lr)  # a library's own",
    "optimizer = torch.optim.AdamW(parameters, lr, fused=True)\n"
    "# fastai: Learner(..., opt_func=partial(OptimWrapper, opt=torch.optim.AdamW, fused=True))",
)


class Updates(Struct, frozen=True, eq=False):
    """The work of optimizers of torch.optim; None where none stepped, and another updates the weights."""

    work: OptimizerWork | None
    lines: Lines

    @classmethod
    def compute(cls, price: Price, lines: Lines, work: OptimizerWork | None) -> Updates:
        """Missing where neither was recorded."""
        if work is None and (price.on_device or len(_last_ops(price)) < _FEWEST):
            raise Missing(OptimizerWork.no_row)
        return cls(work, lines)


def updates_of_others(price: Price, lines: Lines, settings: Settings | None, min_share: float) -> Finding | None:
    """What Adam's update of one tensor after the other takes, from the first tensor's last op to the last one's.

    None in code of the script's own, whose loop the rule tensor-loop tells by its lines.
    """
    rows, steps = _last_ops(price), price.ops.steps
    events = price.ops.events
    step = steps.step_of(events.start_ns[rows])
    edges = np.flatnonzero(np.diff(step, prepend=-1, append=-1))
    first, last = rows[edges[:-1]], rows[edges[1:] - 1]
    often = np.diff(edges)
    spans = np.column_stack((events.start_ns[first], events.end_ns[last]))
    nodes = events.start_ns[events.named(AUTOGRAD_NODE)]
    if often.min() < _FEWEST or starts_in(nodes, spans).any() or _is_of_the_script(lines, spans, len(rows)):
        return None
    # The first tensor's update lies before these stretches, all but its last op.
    whole = float(often.mean() / (often.mean() - 1))
    work = price.deprofiled.stretch(spans, steps).times(whole)
    least_us, most_us = price.deprofiled.us(work)
    fused = _fused_us(price, rows[edges[0] : edges[1]], (settings and settings.threads) or 1)
    least, most = fused or (most_us / _GAIN[1], least_us / _GAIN[0])
    saving = price.of_us(least_us - most, most_us - least, _HOW, basis="modelled")
    if saving.low_us < min_share * price.scale.step_us:
        return None
    us = min(most_us, price.scale.step_us)
    where = lines.where_op(int(rows[0]))
    ops = events.start_ns[price.ops.outermost]
    tensors, calls = len(rows) / len(often), float(starts_in(ops, spans).sum()) / len(often) * whole
    return Finding(
        message=(
            f"An optimizer that is none of `torch.optim` updates {count(tensors)} parameters one by one, in "
            f"{count(calls)} ops a step: up to {duration(us)} of each step ({percent(us / price.scale.step_us)})."
        ),
        saving=saving,
        where=(where,) if where else (),
        facts={"optimizer_us": steps.per_step_us(total(spans)) * whole, "ops": calls, "tensors": tensors},
        fix=_OF_TORCH,
        claims=("other_ops", "host"),
        at_most="medium",
    )


def _fused_us(price: Price, rows: Ints, threads: int) -> tuple[float, float] | None:
    """(least, most) µs of a fused update of the tensors of these ops; None where their shapes were not recorded."""
    events = price.ops.events
    if (events.dims[rows] < 0).any():
        return None
    sizes = [shapes(events.dims_table[at])[:1] for at in events.dims[rows].tolist()]
    elements = sum(math.prod(size[0]) for size in sizes if size)
    known = Optimizer("AdamW", tensors=len(rows), state_bytes=8 * elements, state_dtypes=["float32"])
    return fused_us(known, threads)


def _last_ops(price: Price) -> Ints:
    """The last ops of updates on the loop's thread, in order of start."""
    rows = price.ops.outermost
    return rows[price.ops.events.exactly(_LAST)[rows] & price.ops.events.of(Category.CPU_OP)[rows]]


def _is_of_the_script(lines: Lines, spans: Ints, tensors: int) -> bool:
    """Whether lines of the script take turns while tensors are updated: the loop is its own."""
    return bool(len(lines.spans)) and 2 * int(starts_in(lines.spans[:, 0], spans).sum()) > tensors


_STEPS = """
    step   [1                         ][2                         ]
    cpu    [F   ][B   ]  [A           ][F   ][B   ]  [A           ]
    """


def _updates(times: int) -> Drawing:
    """Two steps whose update of so many tensors no optimizer's row is around."""
    return draw(_STEPS, us=100, A=Ev("aten::addcdiv_", times=times, fill=0.3))


def _line(times: int) -> Drawing:
    """One recorded step: a line that calls the library, or one that runs for each tensor."""
    before = Ev("advisor:line|train.py|30|<module>", "user_annotation")
    more: dict[str, Any] = {} if times == 1 else {"M": before}
    lanes = "[L                         ]" if times == 1 else "[M           ][L           ]"
    return draw(
        f"""
        step   [1                         ]
        cpu    {lanes}
        cpu    [F   ][B   ]  [A           ]
        """,
        us=100,
        L=Ev("advisor:line|train.py|31|<module>", "user_annotation", times=times),
        **more,
        A=Ev("aten::addcdiv_", times=40, fill=0.3),
    )


OF_OTHERS = [
    Example(
        "a library's own Adam on a CPU: no optimizer of torch steps",
        _updates(40),
        lines=_line(1),
        saves_us=(500, 1400),
        says=("none of `torch.optim` updates 40 parameters one by one",),
        fixes=("torch.optim.AdamW",),
    ),
    Example(
        "the same in a loop of the script's own, which tensor-loop reports",
        _updates(40),
        lines=_line(40),
        near_miss=True,
    ),
    Example("an op of that kind for a few tensors", _updates(4), near_miss=True, skipped="no torch optimizer stepped"),
]
