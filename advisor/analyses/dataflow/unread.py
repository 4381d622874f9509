"""Ops of the profiled steps that compute rows which nothing reads."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.dataflow.observed_ops import ObservedOps
from advisor.trace.events import Floats, Ints


class Unread(Struct, frozen=True, eq=False):
    """Ops that compute each row of a tensor separately, and of whose results later ops read only some rows.

    ops      these ops of the profiled steps, in order of start
    readers  for each of them the op that selects rows of its result, or of what was computed from it row by row
    read     for each of them the share of its rows that is read
    """

    ops: Ints
    readers: Ints
    read: Floats

    @classmethod
    def compute(cls, observed: ObservedOps) -> Unread:
        """The ops. Raises Missing if no steps were observed, or if the profiled steps ran different ops."""
        seen = observed.seen.unread
        pairs = np.array([(op, reader) for op, reader, _ in seen], np.int64).reshape(-1, 2)
        share = np.array([read for *_, read in seen], float)
        found = [at[pairs] for at in observed.places] if len(pairs) else []
        known = [(one >= 0).all(axis=1) for one in found]
        rows = np.concatenate([np.empty((0, 2), np.int64), *(one[k] for one, k in zip(found, known, strict=True))])
        read = np.concatenate([np.empty(0), *(share[k] for k in known)])
        order = np.argsort(rows[:, 0], kind="stable")
        return cls(rows[order, 0], rows[order, 1], read[order])
