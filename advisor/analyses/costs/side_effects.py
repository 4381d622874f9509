"""What a change of some work does to the rest of a host's step."""

from __future__ import annotations

from msgspec import Struct

from advisor.analyses.costs.evicted import Evicted
from advisor.analyses.costs.freed import Freed
from advisor.analyses.costs.parameter_work import ParameterWork


class SideEffects(Struct, frozen=True, eq=False):
    """What the rest of the step fetches again, what is freed, and what it does once for each parameter."""

    evicted: Evicted
    freed: Freed
    parameters: ParameterWork

    @classmethod
    def compute(cls, evicted: Evicted, freed: Freed, parameters: ParameterWork) -> SideEffects:
        """Those of a trace whose step is a host's."""
        return cls(evicted, freed, parameters)
