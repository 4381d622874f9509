"""Loops over tensors that the ops themselves show: a few elementwise ops, again and again, and no other work between.

So a moving average of the weights looks, or gradients that are clipped one by one. No line has to be known for it.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from msgspec import Struct

from advisor.api import BACKWARD, Category, Ints, Price

# Fewer may be the layers of a model; more ops in an iteration are a computation.
_TIMES, _OPS = 16, 4
_NORMS = ("linalg_vector_norm", "norm")
_ELEMENTWISE = (
    "add add_ sub sub_ mul mul_ div div_ lerp lerp_ addcmul addcmul_ addcdiv addcdiv_ copy_ neg neg_ pow pow_ square "
    "sqrt sqrt_ abs abs_ clamp clamp_ zero_ fill_ sum"
)
_SMALL = tuple(f"aten::{name}" for name in (*_ELEMENTWISE.split(), *_NORMS))


class OpLoop(Struct, frozen=True, eq=False):
    """A loop over tensors, in all profiled steps.

    ops    without `aten::`, in order of name;  times: how often a step each of them runs
    rows   these ops;  runs: how many uninterrupted runs they form
    """

    ops: tuple[str, ...]
    times: float
    rows: Ints
    runs: int

    @property
    def of_norms(self) -> bool:
        """Whether it computes norms."""
        return any(op in _NORMS for op in self.ops)


def op_loops(price: Price) -> list[OpLoop]:
    """The loops of the loop's thread outside the optimizer, the backward pass and the loader."""
    events, ops = price.ops.events, price.ops
    inside = events.of(Category.ANNOTATION) & events.named("Optimizer.", "DataLoader")
    inside |= events.named(BACKWARD.name.split(":")[0])
    launches = _launches(price)
    rows = ops.outermost
    rows = rows[~ops.nesting.within(inside)[rows] & (launches[rows] > 0)]
    small = events.exactly(*_SMALL)[rows] & (launches[rows] == 1)
    step = ops.links.step[rows]
    changes = np.flatnonzero((small[1:] != small[:-1]) | (step[1:] != step[:-1])) + 1
    found: dict[tuple[str, ...], list[Ints]] = {}
    times: Counter[tuple[str, ...]] = Counter()
    first, after = np.append(0, changes), np.append(changes, len(rows))
    # Nearly all runs are short.
    long = after - first >= _TIMES
    long[long] = small[first[long]]
    for begin, end in zip(first[long].tolist(), after[long].tolist(), strict=True):
        run = rows[begin:end]
        names = Counter(events.name[run].tolist())
        if len(names) <= _OPS and min(names.values()) >= _TIMES:
            key = tuple(sorted(events.names[one].removeprefix("aten::") for one in names))
            found.setdefault(key, []).append(run)
            times[key] += min(names.values())  # an iteration may run one of them twice
    count = ops.steps.count
    return [OpLoop(key, times[key] / count, np.concatenate(runs), len(runs)) for key, runs in found.items()]


def _launches(price: Price) -> Ints:
    """How many kernels each outermost op launches in the profiled steps."""
    ops = price.ops
    outer = ops.nesting.outer_op[ops.links.launch[ops.links.works]]
    return np.bincount(outer[outer >= 0], minlength=len(ops.events))
