"""What doing all turns of a loop at once saves: how much of the loop is calls, and which of its turns have to wait."""

from __future__ import annotations

import math

from advisor.api import MOST_KEPT, Block, Loop, LoopDependency, Price, Saving

from ._side_effect_factors import SIDE_EFFECTS
from ._words import percent

_HIGH = "high: all iterations, their backward pass and what they evict from the caches, in the time of one"
_HIGH_PARTLY = "high: what is independent of the previous iteration runs at once; {stays} of the loop depends on it"
_LOW = "low: what their ops take beyond the call itself remains, or three tenths, as in measured rewrites"
_LOW_LAYER = "low: what a layer over all time steps took at most of such loops in measurements"
_LOW_SPREAD = "{low}; ops over all elements do {times:.2g} times the work of those that the masks select"
# Why nothing is certain.
_PICKS = (
    "each iteration selects its elements with a mask, and ops over all elements at once do the arithmetic of each "
    "iteration for all of them; if elements are sorted by iteration first, each is processed once"
)
_BACKWARD = (
    "each iteration runs a backward pass through the same forward pass, and `vmap` runs ops without a batching rule "
    "one by one"
)
_NUMBERS = "numbers that an iteration reads go through Python, where the next iteration may need them"
NOT_SEEN = "it was not recorded whether iterations depend on each other, in which case no single op replaces them"
_MOSTLY_STAYS = "most of the loop depends on the previous iteration, so the rest has to be moved out of it"
_PERHAPS = "the cells may read what an earlier call made in another way than a layer over all time steps does"
# A part of the place's time that is more than chance.
_VISIBLE = 0.1


def loop_saving(place: Block, loop: Loop, turn: LoopDependency, price: Price) -> Saving:
    """The saving. turn: of the loop, at this place."""
    deprofiled = price.deprofiled
    goes, most = gone(place, loop, turn), gone(place, loop, turn, at_most=True)
    (low, _), (_, high) = goes.share(deprofiled), most.share(deprofiled)
    # Long ops are not made longer by the profiler: their time is that of the real step.
    beyond = (goes.beyond_us or 0.0) / deprofiled.plain_us
    apart = math.isinf(loop.spread)
    least = min(low * (1 - MOST_KEPT), max(low - beyond * (1.0 if apart else loop.spread), 0.0))
    stays = 1 - goes.us / place.us if place.us else 0.0
    how = [_HIGH if stays < _VISIBLE else _HIGH_PARTLY.format(stays=percent(stays)), _LOW]
    if turn.as_layer:
        least, how[1] = low, _LOW_LAYER
    elif loop.spread > 1:
        how[1] = _LOW_SPREAD.format(low=_LOW, times=loop.spread)
    if doubt := _doubt(loop, turn, stays):
        least, how[1] = 0.0, f"low: nothing, since {doubt}"
    known = 1.0 if turn.known else 1 - 1 / loop.turns
    # A range from nothing is as wide as its high end, whatever the profiler did.
    slowed = goes.share(deprofiled)[1] - low if least else 0.0
    return price.shares(least, high * known, "; ".join(how), times=SIDE_EFFECTS, slowed=slowed)


def gone(place: Block, loop: Loop, turn: LoopDependency, at_most: bool = False) -> Block:
    """What of a loop goes: what waits for no turn before, and all that Python or NumPy can do number by number."""
    if loop.numbers:
        return place
    return place.less(turn.stays_at_least if at_most else turn.stays)


def _doubt(loop: Loop, turn: LoopDependency, stays: float) -> str:
    """Why it may be that nothing is gained; empty where something is."""
    if math.isinf(loop.spread):
        return _PICKS
    if loop.reads or loop.numbers:
        return ""  # what a library reads for a text, no turn needs; Python and NumPy take numbers one after the other
    if turn.reads:
        return _NUMBERS
    if loop.derives:
        return _BACKWARD
    if not turn.known or turn.perhaps_layer:
        return _PERHAPS if turn.known else NOT_SEEN
    return _MOSTLY_STAYS if 2 * stays > 1 and not turn.as_layer else ""
