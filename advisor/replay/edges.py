"""The dependencies between nodes that stand in different queues."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from advisor.trace.events import Floats, Ints


class Why(IntEnum):
    """Why one node waits for another."""

    LAUNCH = 0  # work waits for the call that launched it
    EVENT = 1  # work waits for work of another stream (cudaStreamWaitEvent)
    SYNC = 2  # a host call waits for work
    COPY = 3  # a copy from or to pageable memory keeps the host until the data has moved
    FULL = 4  # a launch waits for a place in the full queue of its stream
    THREAD = 5  # a thread waits for another one
    LOADER = 6  # the loop waits for a batch of the loader's workers


class Edges(Struct, frozen=True, eq=False):
    """Dependencies: `target` is ready no earlier than `lag` ns after `source` is done.

    Work is numbered from 0, host points follow: the index of a point plus the number of work nodes.
    """

    source: Ints
    target: Ints
    lag: Floats
    why: npt.NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.source)


class EdgeDraft:
    """Collects edges between work and points while the ids of the points are still drafts."""

    def __init__(self) -> None:
        self.parts: list[tuple[Ints, bool, Ints, bool, Floats, int]] = []

    def add(
        self,
        why: Why,
        source: npt.ArrayLike,
        target: npt.ArrayLike,
        lag: npt.ArrayLike = 0.0,
        *,
        from_point: bool,
        to_point: bool,
    ) -> None:
        """Adds edges; `from_point` and `to_point` say whether the ids are drafts of points or indices of work."""
        sources = np.atleast_1d(np.asarray(source, np.int64))
        targets = np.broadcast_to(np.atleast_1d(np.asarray(target, np.int64)), sources.shape)
        lags = np.broadcast_to(np.asarray(lag, float), sources.shape)
        self.parts.append((sources, from_point, targets, to_point, lags, int(why)))

    def edges(self, point_of_draft: Ints, works: int) -> Edges:
        """All edges in the numbering of the graph."""

        def number(ids: Ints, is_point: bool) -> Ints:
            return point_of_draft[ids] + works if is_point else ids

        if not self.parts:
            none = np.empty(0, np.int64)
            return Edges(none, none, np.empty(0), np.empty(0, np.int8))
        return Edges(
            np.concatenate([number(part[0], part[1]) for part in self.parts]),
            np.concatenate([number(part[2], part[3]) for part in self.parts]),
            np.concatenate([part[4] for part in self.parts]),
            np.concatenate([np.full(len(part[0]), part[5], np.int8) for part in self.parts]),
        )
