"""Forward passes that autograd recorded for no backward pass: what they take of a step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advisor.api import Price, Unfollowed, calm, edits, total, union


def unused_runs(price: Price, runs: Sequence[Unfollowed]) -> tuple[float, edits.Edit]:
    """(recorded µs per step that these runs take, the step without them): with a device by what they launch."""
    if price.on_device:
        rows = np.concatenate([run.rows for run in runs])
        return price.spent_us(rows), edits.remove(rows)
    spans = calm(union(np.array([run.start_ns for run in runs]), np.array([run.end_ns for run in runs])))
    return price.ops.steps.per_step_us(total(spans)), edits.remove_time(spans)
