"""What DistributedDataParallel's search for unused parameters costs, where it finds none."""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from advisor.analyses.base.steps import Steps
from advisor.analyses.communication.communication import is_communication
from advisor.analyses.work.operands import dims_of, sizes
from advisor.trace.events import Category, Floats, Ints, Trace
from advisor.trace.op_names import GRADIENT_STORE

_SEARCH = "reducer::search_unused_parameters"
_SINK = ("_DDPSink", "_DDPSinkBackward")
# One row for each parameter of the model, used or not.
_EACH = "reducer::copy_bucket_to_grad"
# Two-sided 80 % points of Student's t for 1 … 10 degrees of freedom: four of five means of so few steps lie within.
_T80 = (3.08, 1.89, 1.64, 1.53, 1.48, 1.44, 1.41, 1.40, 1.38, 1.37)


class NeedlessSearch(Struct, frozen=True):
    """A search in every pass that found all parameters used; µs of the profiled step.

    parameters  of the model; 0 if there is no search, or if not all of them are known to be used
    passes      searches per step
    search_us   the search, on the loop's thread
    told_us     how much later the last reduction of a pass ends because ranks exchange what they found
    spread_us   uncertainty of that mean over the profiled steps, ±; all of it if there is only one step
    telling_us  total time of the reductions that exchange it, overlapped or not
    """

    parameters: int = 0
    passes: float = 0.0
    search_us: float = 0.0
    told_us: float = 0.0
    spread_us: float = 0.0
    telling_us: float = 0.0

    @classmethod
    def compute(cls, trace: Trace, steps: Steps) -> NeedlessSearch:
        """The search in the window; none without events for each parameter, or if passes are cut off."""
        events = trace.events
        inside = steps.step_of(events.start_ns) >= 0
        search = events.named(_SEARCH) & inside
        passes = int(search.sum())
        all_of_them = int((events.named(_EACH) & inside).sum())
        used = int((events.exactly(GRADIENT_STORE) & events.of(Category.CPU_OP) & inside).sum())
        if not passes or not all_of_them or used != all_of_them or used % passes:
            return cls()
        spent = (search | events.exactly(*_SINK)) & inside
        told, others = _reductions(trace, used // passes)
        later_us = _later_us(trace, steps, told, others)
        return cls(
            parameters=used // passes,
            passes=passes / steps.count,
            search_us=steps.per_step_us(float(events.dur_ns[spent].sum())),
            told_us=float(later_us.mean()),
            spread_us=_spread_us(later_us),
            telling_us=steps.per_step_us(float(events.dur_ns[told[inside[told]]].sum())),
        )


def _spread_us(values_us: Floats) -> float:
    """Half the width of the interval of the mean."""
    count = len(values_us)
    if count < 2:
        return float(values_us.mean())
    return float(_T80[min(count - 2, len(_T80) - 1)] * values_us.std(ddof=1) / math.sqrt(count))


def _later_us(trace: Trace, steps: Steps, told: Ints, others: Ints) -> Floats:
    """For each step, by how much the reductions of what was found outlast those of the gradients before them, µs."""
    events = trace.events
    step = steps.step_of(events.start_ns)
    later_ns = np.zeros(steps.count)
    begun = events.start_ns[others]
    for row in told[step[told] >= 0].tolist():
        # Those of the same step that were under way before this one ended; it may well overtake them.
        before = others[(begun < events.end_ns[row]) & (step[others] == step[row])]
        ends = int(events.end_ns[before].max()) if len(before) else 0
        later_ns[step[row]] += min(max(int(events.end_ns[row]) - ends, 0), int(events.dur_ns[row]))
    return later_ns / 1e3


def _reductions(trace: Trace, parameters: int) -> tuple[Ints, Ints]:
    """Communication of as many numbers as there are parameters, and all other: kernels, else the host's own rows."""
    events = trace.events
    kind = events.of(Category.KERNEL) if events.of(Category.KERNEL).any() else events.of(Category.ANNOTATION)
    talk = np.flatnonzero(events.rows_with(events.names_where(is_communication)) & kind)
    told = np.zeros(len(talk), bool)
    for at, row in enumerate(talk.tolist()):
        of_kernel = events.collective[row]
        elements = events.collective_table[of_kernel].in_elements if of_kernel >= 0 else -1
        told[at] = elements == parameters or sizes(dims_of(events, row), 0) == (parameters,)
    return talk[told].astype(np.int64), talk[~told].astype(np.int64)
