"""Lines of the script that take much of what it takes to make a batch in the training loop itself."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from advisor.api import (
    Deprofiled,
    Fix,
    InputWaits,
    LineCosts,
    Loader,
    Price,
    Saving,
    Scale,
    Source,
    callers_above,
    duration,
)

from ..shared._places import place
from ._sample_ops import FOR_THE_BATCH

# Unavoidable Python stays below this share of the step, line by line, in scripts without a fault.
_MATERIAL = 0.10
# Where lines are known for less of the fetches than this, they may not be those that matter.
_KNOWN = 0.5

_CHEAPER = Fix(
    "Compute what does not change once, before the training, or make these lines cheaper",
    "exact",
    "def __getitem__(self, index):\n    same = [i for i, name in enumerate(self.names) if name == self.names[index]]",
    "self.of = {one: [i for i, name in enumerate(names) if name == one] for one in set(names)}  # in __init__\n\n"
    "def __getitem__(self, index):\n    same = self.of[self.names[index]]",
)


_NEEDED = "nothing, if each sample needs it"
_ONCE_PER_BATCH = (
    "tensor ops run once per batch, and what they take beyond the call itself remains, or three tenths, as in measured "
    "rewrites of loops"
)
# Less of the step than this is no reason to run ops elsewhere.
_WORTH = 0.02
_Place = tuple[str, int]


class CostlyLines(Struct, frozen=True):
    """Lines that each take a material part of the step inside its fetches.

    us: of each, at most, un-profiled µs; fetch_us: of all fetches of a step; below: of the functions that they call the
    line that takes most; at_once_us: what goes at least if the tensor ops of samples run once per batch
    """

    sources: tuple[Source, ...]
    us: tuple[float, ...]
    fetch_us: float
    below: tuple[Source, ...] = ()
    at_once_us: float = 0.0

    @property
    def said(self) -> str:
        """', up to 1.2 ms at train.py:25 and 1.1 ms at train.py:26'."""
        parts = [f"{duration(us)}{place(at)}" for at, us in zip(self.sources, self.us, strict=True)]
        return ", up to " + " and ".join(parts)

    @property
    def fix(self) -> Fix:
        """What to do with them."""
        return FOR_THE_BATCH if self.at_once_us else _CHEAPER

    def within(self, made_us: float) -> CostlyLines:
        """The same where a batch takes no longer, in the median: the few recorded steps may have been slow ones."""
        factor = min(made_us / sum(self.us), 1.0)
        return replace(
            self,
            us=tuple(us * factor for us in self.us),
            fetch_us=max(self.fetch_us * factor, made_us),
            at_once_us=self.at_once_us * factor,
        )

    def with_ops(self, at_once_us: float, step_us: float) -> CostlyLines:
        """The same, where so much goes if tensor ops of samples run once per batch."""
        return replace(self, at_once_us=at_once_us if at_once_us >= _WORTH * step_us else 0.0)

    def saving(self, price: Price) -> Saving:
        """At most all that they take; what a line needs at least is known of lines of tensor ops only."""
        us = sum(self.us)
        least_us = min(self.at_once_us, us)
        low = _ONCE_PER_BATCH if least_us else _NEEDED
        how = f"high: the time of these lines and what they evict from the caches; low: {low}"
        return price.of_us(least_us, us + price.refill_us(us), how)


def costly_lines(
    costs: LineCosts | None, waits: InputWaits, facts: Loader | None, deprofiled: Deprofiled, scale: Scale
) -> CostlyLines | None:
    """The lines of samples and batches that are worth a change, most expensive first; None where there are none.

    A line stands for what it calls, unless that is a material line itself. Those that ask for a batch stand for the
    loader's own work, those of a sampler are another finding's.
    """
    lines = {_at(line.source): line for line in (costs.lines if costs else ()) if line.parts.get("input")}
    known_us = sum(line.parts["input"] for line in lines.values())
    if known_us < _KNOWN * waits.us:
        return None
    # What no line is known for is shared out in proportion.
    times = max(waits.us / known_us, 1.0)
    own = {
        at: deprofiled.us(deprofiled.in_part("fetch", line.parts["input"] * times, line.rows * times))[1]
        for at, line in lines.items()
    }
    roots = {_at(line) for line in waits.asked_at}
    called = {at: line.called_from for at, line in lines.items() if at not in roots}
    found = _material(own, called, _MATERIAL * scale.step_us)
    kept = [(us, lines[at].source) for at, us in found.items() if _is_own(lines[at].source, roots, facts)]
    kept.sort(key=lambda one: -one[0])
    _, fetch_us = deprofiled.us(deprofiled.in_part("fetch", waits.us, sum(line.rows for line in lines.values())))
    if not kept:
        return None
    lowest = [_lowest(_at(source), own, called, set(found)) for _, source in kept]
    below = tuple(lines[at].source for at in lowest if at is not None)
    return CostlyLines(tuple(at for _, at in kept), tuple(us for us, _ in kept), fetch_us, below)


def _material(own: dict[_Place, float], called: dict[_Place, _Place | None], least_us: float) -> dict[_Place, float]:
    """Lines with at least so much time, their own and what the lines below them have that stay below it."""
    us, deep = dict(own), {at: sum(1 for _ in callers_above(at, called)) for at in own}
    found = {}
    for at in sorted(own, key=lambda at: -deep[at]):
        if us[at] >= least_us:
            found[at] = us[at]
        elif (above := called.get(at)) in us and deep[above] < deep[at]:
            us[above] += us[at]
    return found


def _lowest(
    at: _Place, own: dict[_Place, float], called: dict[_Place, _Place | None], others: set[_Place]
) -> _Place | None:
    """The costliest of the lines that a line is reported for; None where that is the line itself."""

    def stands_for(one: _Place) -> bool:
        way = (one, *callers_above(one, called))
        return at in way and others.isdisjoint(way[: way.index(at)])

    most = max((one for one in own if stands_for(one)), key=own.__getitem__, default=at)
    return most if most != at else None


def _is_own(line: Source, roots: set[_Place], facts: Loader | None) -> bool:
    """Whether a line is the script's, and neither asks for a batch nor draws indices."""
    if line.file.startswith("<") or _at(line) in roots or not roots:
        return False
    drawn = facts is not None and line.file == facts.sampler_file
    return not (facts and drawn and any(first <= line.line <= last for first, last in facts.sampler_lines))


def _at(source: Source) -> _Place:
    return source.file, source.line
