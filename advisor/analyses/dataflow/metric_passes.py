"""Forward passes after the optimizer's step, on what the step trained on, for nothing but numbers of Python."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.dataflow.needs import Needs
from advisor.analyses.dataflow.observed_ops import ObservedOps
from advisor.analyses.dataflow.reused import Reused, paired


class MetricPasses(Struct, frozen=True, eq=False):
    """Ops that compute what a trained op of the step had, but for weights that the optimizer has written since.

    ops  as `Reused`: `again` and the trained ops, `first`. Nothing in the training reads what `again` computes.
    """

    ops: Reused

    @classmethod
    def compute(cls, observed: ObservedOps, needs: Needs) -> MetricPasses:
        """The ops. Missing where it is not known what the training needs."""
        trained = [(at, first) for at, first in observed.seen.updated if needs.live[first]]
        found = [np.empty((0, 3), np.int64)]
        before = observed.places[:1] + observed.places
        for rows, earlier, needed in zip(observed.places, before, needs.needed, strict=False):
            pairs = [pair for pair in trained if not needed[pair[0]]]
            found.append(paired(rows, earlier, np.array(pairs, np.int64).reshape(-1, 2)))
        both = np.concatenate(found)
        nothing = np.empty(0, np.int64)
        return cls(Reused(observed.rows, both[:, 0], both[:, 1], both[:, 2] > 0, nothing, observed.share))
