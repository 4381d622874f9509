"""Batches whose gradients a step adds up: how many equal backward passes it runs before one update."""

from __future__ import annotations

from itertools import groupby, pairwise

import numpy as np

from advisor.api import BackwardPasses, Price

_Stored = tuple[str, ...]


def accumulated(price: Price) -> int:
    """Backward passes of a step that store gradients of the same shapes, each added to those before; 1 where none is.

    Steps that differ in it, as at the end of an epoch, count as 1, and so do passes of different models.
    """
    steps = price.ops.steps
    passes = [one for one in BackwardPasses(price.ops.trace, steps, price.ops.nesting).some if one.stores]
    if not passes:
        return 1
    in_step = steps.step_of(np.array([one.start_ns for one in passes], np.int64)).tolist()
    counts = set[int]()
    for step, found in groupby(zip(in_step, passes, strict=True), key=lambda pair: pair[0]):
        mine = [one for _, one in found]
        shapes: list[_Stored] = [tuple(sorted(store.shape for store in one.stores)) for one in mine]
        alike = all(one == other for one, other in pairwise(shapes))
        adds = not any(store.fresh for one in mine[1:] for store in one.stores)
        if step >= 0:
            counts.add(len(mine) if alike and adds else 1)
    return counts.pop() if len(counts) == 1 else 1
