"""Who asks for the collectives of a rank, and what one takes by its size."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.step_ops import StepOps
from advisor.analyses.communication.collective_launches import Asked
from advisor.analyses.communication.collective_sizes import bytes_of, least_us
from advisor.analyses.communication.late_roots import LateRoots
from advisor.analyses.communication.library import Library
from advisor.analyses.communication.parallelism import Parallelism
from advisor.analyses.communication.part_updates import PartUpdates
from advisor.analyses.step.breakdown import Breakdown
from advisor.trace.events import Category, Floats, Ints, Mask
from advisor.trace.intervals import intersect, subtract, total
from advisor.trace.op_names import GRADIENT_STORE

# The reducer of DistributedDataParallel is called when a gradient was stored.
# Libraries ask within rows of their own, and functional collectives are those of DTensor and of compiled code. What is
# asked for within DistributedDataParallel's forward pass, its buffers and synchronized norms aside (`Parallelism` knows
# them), a model or a loss of the script's asks for: keys that are gathered for a contrastive loss, say.
_LIBRARIES = ("FSDP::", "FullyShardedDataParallel.", "_c10d_functional")
# Sizes tell latency from bandwidth where one is at least twice the other; of very many, so many are looked at.
_APART, _MOST = 2.0, 400
_NONE = np.empty(0, np.int64)


class CollectiveRate(Struct, frozen=True):
    """Time of a collective of this rank by its size, fitted to those of the window: latency + bytes x per_byte.

    latency_us   (low, high): interquartile range of the time beyond transfer, µs each; from 0 if all have about one
                 size, so that latency and transfer cannot be distinguished
    per_byte_us  median over all pairs of collectives whose sizes differ twofold (Theil-Sen); None if there are none
    n            number of collectives in the fit
    """

    latency_us: tuple[float, float]
    per_byte_us: float | None
    n: int


class CallerTime(Struct, frozen=True, eq=False):
    """Collectives of one caller.

    rows, ops    their events, and the ops that started them, in the same order
    calls        per step;  bytes: per step, 0 for a barrier, None where a size is not known
    exposed_us   time in which they run without computation and without collectives of the other caller, µs per step
    least_us     time per step if each took as long as the fastest 10 % of its size, with no rank late
    """

    rows: Ints
    ops: Ints
    calls: float
    bytes: float | None
    exposed_us: float
    least_us: float


class Callers(Struct, frozen=True, eq=False):
    """Collectives of a rank by caller.

    reducer  those of DistributedDataParallel's reducer;  script: those that lines of the script call in addition
    rate     the time of one; None if there are none
    late     broadcasts that wait for the rank that sends: they are not counted to the script's
    sent     broadcasts of weights that each rank has updated for all, nor are these; None if there are none
    sent_by  class of the optimizer that asks for them, "" if not known;  update: kernels of this rank's part of it

    The first two are None if the training is not distributed by DistributedDataParallel alone, or if its reducer was
    not found: then gradients that a script reduces itself cannot be distinguished from other collectives. What another
    kind of parallelism asks for (an exchange of embeddings) is neither: `Parallelism` counts its time.
    """

    reducer: CallerTime | None
    script: CallerTime | None
    rate: CollectiveRate | None
    late: LateRoots
    sent: CallerTime | None = None
    sent_by: str = ""
    update: Ints = _NONE

    @classmethod
    def compute(
        cls,
        ops: StepOps,
        breakdown: Breakdown,
        asked: Asked,
        library: Library,
        parallelism: Parallelism,
        parts: PartUpdates,
        late: LateRoots,
    ) -> Callers:
        """The callers of this rank's collectives."""
        steps, nesting, events = ops.steps, ops.nesting, ops.events
        sizes = bytes_of(events, asked.rows)
        took_us = events.dur_ns[asked.rows] / 1e3
        rate = fitted(sizes, took_us) if len(asked.rows) else None
        host = events.of(Category.CPU_OP, Category.ANNOTATION)
        reducer = (asked.op >= 0) & (nesting.ancestor_of(asked.op, host & events.named(GRADIENT_STORE)) >= 0)
        data = (asked.op >= 0) & np.array([kind == "data" for kind in parallelism.of_row], np.bool_) & ~reducer
        data &= nesting.ancestor_of(asked.op, host & events.named(*_LIBRARIES)) < 0
        data &= events.named("c10d::")[np.maximum(asked.op, 0)]
        exposed = breakdown.intervals[breakdown.talking]

        def share(of: Mask, other: Mask) -> CallerTime | None:
            if not of.any():
                return None
            rows, others = asked.rows[of], asked.rows[other]
            mine = events.covered(rows)
            theirs = events.covered(others)
            alone = intersect(subtract(mine, theirs), exposed)
            stated = sizes[of]
            return CallerTime(
                rows,
                asked.op[of],
                len(rows) / steps.count,
                None if np.isnan(stated).any() else float(stated.sum()) / steps.count,
                steps.of_window_us(total(alone)),
                least_us(stated, took_us[of]) / steps.count,
            )

        sent = share(parts.sent, ~parts.sent)
        if library.name != "ddp" or not reducer.any():
            return cls(None, None, rate, late, sent, parts.name, parts.update)
        script = data & ~parts.sent & ~np.isin(asked.rows, late.rows)
        return cls(share(reducer, script), share(script, reducer), rate, late, sent, parts.name, parts.update)


def fitted(sizes: Floats, took_us: Floats) -> CollectiveRate:
    """Latency and bandwidth of these collectives: bytes of each (nan: not known) and µs."""
    known = ~np.isnan(sizes)
    sizes, took_us = sizes[known], took_us[known]
    if not len(sizes):
        return CollectiveRate((0.0, 0.0), None, 0)
    chosen = np.unique(np.linspace(0, len(sizes) - 1, min(len(sizes), _MOST)).astype(int))
    sizes, took_us = sizes[chosen], took_us[chosen]
    small, large = np.triu_indices(len(sizes), 1)
    swap = sizes[small] > sizes[large]
    small, large = np.where(swap, large, small), np.where(swap, small, large)
    apart = (sizes[large] > 0) & (sizes[large] >= _APART * sizes[small])
    small, large = small[apart], large[apart]
    if not len(small):
        # Of one size: all of the time may be latency, or none of it.
        return CollectiveRate((0.0, float(np.quantile(took_us, 0.25))), None, len(sizes))
    slope = max(float(np.median((took_us[large] - took_us[small]) / (sizes[large] - sizes[small]))), 0.0)
    beyond = np.maximum(took_us - slope * sizes, 0.0)
    low, high = (float(one) for one in np.quantile(beyond, (0.25, 0.75)))
    return CollectiveRate((low, high), slope, len(sizes))
