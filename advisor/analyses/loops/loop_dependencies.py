"""What is known of the turns of each loop: how much of them waits for the turn before, and what is read in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from advisor.analyses.costs.line_costs import LineCosts
from advisor.analyses.loops.dependent_iterations import Chains
from advisor.analyses.loops.loop_places import LoopPlaces
from advisor.model import Source


@dataclass(frozen=True, slots=True)
class LoopDependency:
    """What is known of the turns of one loop.

    known   whether it was seen what each op waits for
    stays   by line the share of its ops that waits for the turn before; of other lines nothing is known
    reads   whether Python is given numbers in most turns and gives the ops tensors: a turn may need what the last read
    """

    known: bool
    stays: Mapping[Source, float]
    reads: bool


@dataclass(frozen=True, slots=True)
class LoopDependencies:
    """One entry for each of `LoopPlaces.ops`."""

    of: tuple[LoopDependency, ...]

    @classmethod
    def compute(cls, places: LoopPlaces, costs: LineCosts, chains: Chains | None) -> LoopDependencies:
        """The turns of every loop of this rank. Missing where the places are."""
        index = {line.source: at for at, line in enumerate(costs.lines)}
        found = []
        for place, loop in places.ops:
            lines = [index[line.source] for line in place.lines]
            stays = chains.stays(lines, loop.turns) if chains is not None else None
            if chains is None or stays is None:
                found.append(LoopDependency(False, {}, loop.feeds))
            else:
                reads = loop.feeds and not chains.reads_before(lines)
                found.append(
                    LoopDependency(True, {costs.lines[at].source: share for at, share in stays.items()}, reads)
                )
        return cls(tuple(found))
