"""The module that an instant of a profiled step belongs to, in the forward and in the backward pass."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.links import Links
from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.steps import Steps
from advisor.analyses.costs.module_calls import ModuleCalls
from advisor.analyses.costs.module_costs import nodes_of_chains
from advisor.trace.events import Ints, Trace
from advisor.trace.intervals import Intervals


class ModuleInstants(Struct, frozen=True, eq=False):
    """Modules by time. An instant in a node of the backward pass is of the module whose forward op made that node.

    calls   which module ran its forward when
    nodes   outermost autograd nodes whose module is known, in order of their start;  who: the chain of each
    """

    calls: ModuleCalls
    nodes: Intervals
    who: Ints

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, calls: ModuleCalls, links: Links, nesting: Nesting) -> ModuleInstants:
        """Those of this rank. Missing where no module is known to have run."""
        return cls(calls, *nodes_of_chains(trace, steps, calls, links, nesting))

    def module_at(self, time_ns: Ints) -> Ints:
        """The innermost module of each instant, an index into `calls.paths`; -1 where it is of none."""
        chain = self.calls.chain_at(time_ns)
        if len(self.nodes):
            at = np.maximum(np.searchsorted(self.nodes[:, 0], time_ns, side="right") - 1, 0)
            inside = (time_ns >= self.nodes[at, 0]) & (time_ns < self.nodes[at, 1])
            chain = np.where((chain < 0) & inside, self.who[at], chain)
        innermost = np.array([*(one[-1] for one in self.calls.chains), -1], np.int64)
        return innermost[chain]
