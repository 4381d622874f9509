"""What is known of the turns of each loop: how much of them waits for the turn before, and what is read in them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from advisor.analyses.costs.line_costs import LineCosts
from advisor.analyses.loops.dependent_iterations import Chains
from advisor.analyses.loops.line_blocks import Block
from advisor.analyses.loops.loop_places import LoopPlaces
from advisor.analyses.loops.loops import Loop
from advisor.capture.record import RankRecord
from advisor.model import Source


class LoopDependency(Struct, frozen=True):
    """What is known about the iterations of one loop.

    known   whether the inputs of each op were observed, or the text of the loop says that no iteration needs another
    stays   for each line the share of its ops that depends on the previous iteration, at most; other lines are unknown
    stays_at_least  the same at least: what `nn.LSTM` takes of a loop over its cells was measured as a range
    as_layer  the cell that a layer over all time steps takes the place of for certain; empty where there is none
    perhaps_layer  whether such a layer may take the place of its cells
    missed  whether ops were observed, but not those of this loop, such as a rollout that runs once in many steps
    reads   whether Python reads numbers in most iterations and passes tensors to ops: an iteration may depend on them
    """

    known: bool
    stays: Mapping[Source, float]
    reads: bool
    stays_at_least: Mapping[Source, float] = {}
    missed: bool = False
    as_layer: str = ""
    perhaps_layer: bool = False


class LoopDependencies(Struct, frozen=True):
    """One entry for each of `LoopPlaces.ops`, and for each of its `calls`."""

    of: tuple[LoopDependency, ...]
    calls: tuple[LoopDependency, ...] = ()

    @classmethod
    def compute(
        cls, places: LoopPlaces, costs: LineCosts, chains: Chains | None, record: RankRecord | None
    ) -> LoopDependencies:
        """Dependencies of every loop of this rank. Missing where the places are."""
        index = {line.source: at for at, line in enumerate(costs.lines)}

        def of(place: Block, loop: Loop) -> LoopDependency:
            lines = [index[line.source] for line in place.lines]
            stays = chains.stays(lines, loop.turns) if chains is not None else None
            if chains is None or stays is None:
                apart = chains is None and _apart_by_text(place, record)
                return LoopDependency(apart, {}, loop.feeds, missed=chains is not None)
            reads = loop.feeds and not chains.reads_before(lines)
            least, most = ({costs.lines[at].source: both[end] for at, both in stays.by_line.items()} for end in (0, 1))
            return LoopDependency(True, most, reads, least, as_layer=stays.as_layer, perhaps_layer=stays.perhaps)

        return cls(tuple(of(*one) for one in places.ops), tuple(of(one.place, one.loop) for one in places.calls))


def _apart_by_text(place: Block, record: RankRecord | None) -> bool:
    """Whether the text of each loop of a place says that no iteration needs what an earlier one made."""
    text = record.blocks if record else {}
    kinds = [
        {one.kind for one in text.get(head.file, ()) if one.line == head.line and one.kind in ("loop", "apart")}
        for head in place.heads
    ]
    loops = [kind for kind in kinds if kind]
    return bool(loops) and all("apart" in kind for kind in loops)
