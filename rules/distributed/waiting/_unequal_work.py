"""Ranks that get batches of unequal work, as one of them shows: the longer it computes, the less it waits."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.api import Fix, Intervals, Ints, Price, duration, is_communication, subtract, total, union

# Fewer steps may fall into such an order by chance: of five pairs in random order one in 120 does.
_ENOUGH = 5
# Batches whose work differs by less than this factor are alike; how strictly waits have to follow from it.
_DIFFERS, _FOLLOWS = 1.25, -0.9

LENGTHS = Fix(
    "Group samples by length, so that all ranks get similar lengths in a step",
    "semantics",
    "sampler = DistributedSampler(dataset)\nloader = DataLoader(dataset, batch_size=batch_size, sampler=sampler)",
    "order = sorted(range(len(dataset)), key=lambda index: len(dataset[index]))\n"
    "whole = batch_size * world_size\n"
    "groups = [order[start : start + whole] for start in range(0, len(order) - whole + 1, whole)]\n"
    "random.Random(epoch).shuffle(groups)\n"
    "loader = DataLoader(dataset, batch_sampler=[group[rank::world_size] for group in groups])",
)


class UnequalWork(Struct, frozen=True):
    """The shortest and the longest computation of this rank in a step, µs."""

    least_us: float
    most_us: float

    def said(self, late: str) -> str:
        """A sentence about it.  late: how long this rank waits."""
        computing = f"{duration(self.least_us)} to {duration(self.most_us)}"
        return (
            f" At least {late} of it is waiting for other ranks, the less the longer this one computes ({computing} a "
            "step): batches are unequal."
        )


def unequal_work(price: Price, rows: Ints, waits: Intervals) -> UnequalWork | None:
    """Whether it is the batches that make ranks wait: in each step what this rank computes, and waits beside that.

    A rank that is always late, or a slow one, makes the others wait whatever they compute themselves.
    rows, waits: the collectives that wait, and when
    """
    events, links, steps = price.ops.events, price.ops.links, range(price.ops.steps.count)
    own = links.works[~events.rows_with(events.names_where(is_communication))[links.works]]
    computing = events.covered(own)
    computed = np.array([total(events.covered(own[links.step[own] == step])) for step in steps], float)
    spans = [waits[links.step[rows] == step] for step in steps]
    waited = np.array([total(subtract(union(one[:, 0], one[:, 1]), computing)) for one in spans], float)
    if len(computed) < _ENOUGH or computed.min() * _DIFFERS > computed.max() or not waited.std():
        return None
    if np.corrcoef(computed, waited)[0, 1] > _FOLLOWS:
        return None
    return UnequalWork(float(computed.min()) / 1e3, float(computed.max()) / 1e3)
