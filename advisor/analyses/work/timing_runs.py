"""Kernels that a library runs only to time them: cuDNN and MIOpen try their algorithms on shapes new to them."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from advisor.analyses.base.classify import rows_named
from advisor.analyses.base.links import Links
from advisor.analyses.base.nesting import Nesting
from advisor.trace.events import Category, Ints, Trace

CONVOLUTIONS = ("aten::convolution", "aten::convolution_backward")
_EVENT_WAIT = re.compile(r"^(cuda|hip)EventSynchronize")
# Two events are waited for where two algorithms are compared; one may be the allocator's.
_COMPARED = 2


class TimingRuns(Struct, frozen=True, eq=False):
    """Calls of convolutions inside which the host waits for events, as it reads how long each algorithm took.

    calls     rows of these ops;  kernels: what each launched before the last such wait;  owner: the call of each kernel
    """

    calls: Ints
    kernels: Ints
    owner: Ints

    @classmethod
    def compute(cls, trace: Trace, nesting: Nesting, links: Links) -> TimingRuns:
        """Of the whole trace; empty where nothing is timed."""
        events = trace.events
        none = np.empty(0, np.int64)
        waits = np.flatnonzero(rows_named(events, _EVENT_WAIT.search, Category.RUNTIME))
        convolutions = events.exactly(*CONVOLUTIONS)
        if not len(waits) or not convolutions.any():
            return cls(none, none, none)
        around = nesting.ancestor_of(waits, convolutions)
        waits, around = waits[around >= 0], around[around >= 0]
        calls, times = np.unique(around, return_counts=True)
        calls = calls[times >= _COMPARED]
        if not len(calls):
            return cls(none, none, none)
        last_ns = np.zeros(len(events), np.int64)
        np.maximum.at(last_ns, around, events.start_ns[waits])
        work = np.flatnonzero(events.of(Category.KERNEL) & (links.launch >= 0))
        owner = nesting.ancestor_of(links.launch[work], convolutions)
        work, owner = work[owner >= 0], owner[owner >= 0]
        timed = np.isin(owner, calls) & (events.start_ns[links.launch[work]] < last_ns[owner])
        return cls(calls, work[timed], owner[timed])
