"""Ops of the profiled steps that work for statistics of weights or gradients which the script only keeps."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.dataflow.needs import Needs
from advisor.analyses.dataflow.observed_ops import ObservedOps
from advisor.trace.events import Ints


class WeightStatistics(Struct, frozen=True, eq=False):
    """Ops that read weights and gradients alone, and whose results, such as histograms, no op reads.

    ops  their rows, in order of start, with the views and the reads of numbers among them
    """

    ops: Ints

    @classmethod
    def compute(cls, observed: ObservedOps, needs: Needs) -> WeightStatistics:
        """The rows. Missing where it is not known what the training needs."""
        places = np.array([place for place in observed.seen.statistics if not needs.live[place]], np.int64)
        rows = [at[places] for at in observed.places] if len(places) else []
        found = np.sort(np.concatenate(rows)) if rows else np.empty(0, np.int64)
        return cls(found[found >= 0])
