"""A forward pass after the optimizer's step for nothing but a number, which the output of the training pass gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import CallSites, Ev, Example, Finding, Fix, Lines, Price, Reused, draw, is_layer

from ..shared._examples import node
from ..shared._places import place
from ..shared._words import each_step, often
from ._proven_passes import asked
from ._same_result import reuse
from ._second_forward_examples import LAYER, linear

# What runs in fewer of the steps is not had in each of them.
_MOST_STEPS = 0.5


def after_the_update(
    price: Price, ops: Reused, lines: Lines | None, sites: CallSites, min_share: float
) -> Iterator[Finding]:
    """Passes that only the update tells from the trained ones. ops: of `MetricPasses`."""
    trace, steps = price.ops.trace, price.ops.steps
    again, first = ops.again, ops.first
    ran = len(np.unique(steps.step_of(trace.events.start_ns[again])))
    if ran < _MOST_STEPS * steps.count or not any(is_layer(trace.events, row) for row in again.tolist()):
        return
    work = reuse(price, ops, lines, np.unique(again), np.unique(first))
    if not work.is_material(price, min_share):
        return
    where = asked(trace, lines, sites, again, first)
    yield Finding(
        message=(
            f"After the optimizer's step the forward pass runs again {often(ran / steps.count)}"
            f"{place(next(iter(where), None))}, on the batch that was trained on, for a number that no op of the "
            f"training reads: {each_step(price, work.us)}."
        ),
        saving=work.saving,
        where=tuple(dict.fromkeys((*where, *work.where))),
        facts={"forward_us": work.us, "per_step": ran / steps.count, "ops": len(work.rows) / steps.count},
        fix=_BEFORE_THE_UPDATE,
        claims=work.claims,
        at_most="medium",  # Python may decide by the number
    )


_BEFORE_THE_UPDATE = Fix(
    "Take the metric from the training pass (the number is then that before the update; the training is the same)",
    "exact",
    "loss.backward()\noptimizer.step()\naccuracy = (model(inputs).argmax(1) == targets).float().mean()",
    "loss.backward()\noptimizer.step()\naccuracy = (logits.detach().argmax(1) == targets).float().mean()",
)

_STEPS = """
    step   [1                                       ][2                                       ]
    cpu    [A ][B ][Z   ][Y   ] [O ] [C ][D ][I]      [E ][F ][X   ][W   ] [O ] [C ][D ][I]
    """
_OPS: dict[str, Any] = {
    **{name: linear(number) for name, number in zip("ABEF", (1, 2, 3, 4), strict=True)},
    **{name: node(number) for name, number in zip("ZYXW", (2, 1, 4, 3), strict=True)},
    **dict.fromkeys("CD", Ev("aten::linear", dims=LAYER)),
    "I": Ev("aten::item", dims=[[]]),
}


def _example(what: str, saves_us: tuple[int, int] | None, updated: list[tuple[int, int]], *leaving: int) -> Example:
    """Two layers are trained and run again after the optimizer's step; what leaves them is one number, most often."""
    seen = {
        "names": ["aten::linear", "aten::item"],
        "ops": [0, 0, 0, 0, 1],
        "updated": updated,
        "waits": [[], [1], [], [1], [1]],
        "leaving": list(leaving),
    }
    return Example(
        what,
        draw(_STEPS, us=100, **_OPS),
        facts={"reused": seen},
        saves_us=saves_us,
        says=("After the optimizer's step the forward pass runs again once a step",) if saves_us else (),
        near_miss=saves_us is None,
    )


AFTER_THE_UPDATE = [
    _example(
        "the accuracy of the batch is had from another pass after the optimizer's step", (700, 1350), [(2, 0), (3, 1)]
    ),
    _example("a policy acts after the step, and what it decides goes to the environment", None, [(2, 0), (3, 1)], 3),
    _example("after the step the model evaluates another batch, or other weights are asked", None, []),
]
