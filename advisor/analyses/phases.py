"""The phases of a training step on the main thread."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.analyses.steps import Steps
from advisor.computed import Missing
from advisor.trace.events import Trace
from advisor.trace.intervals import Intervals


@dataclass(frozen=True, slots=True, eq=False)
class Phases:
    """What the main thread is doing in W; the first that applies has the instant. The union of all is W.

    input          in a fetch from the loader
    communication  host communication on any thread while no op computes on the main thread
    optimizer      in `Optimizer.step` or `Optimizer.zero_grad`, Python between their ops included
    backward       in ops of the autograd engine (on any thread while the main thread runs none)
    forward        in ops that autograd answers later, and in those between them that belong to the same pass
    other_ops      in other ops
    host           in no op: Python
    """

    input: Intervals
    communication: Intervals
    forward: Intervals
    backward: Intervals
    optimizer: Intervals
    other_ops: Intervals
    host: Intervals

    @classmethod
    def compute(cls, trace: Trace, steps: Steps) -> Phases:
        """Phases of this rank."""
        raise Missing("this analysis is not written yet")
