"""Python of a few of the steps alone: a checkpoint, a log every N steps, an agent that plays before it learns."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.api import Block, Intervals, Lines, Steps, intersect, total

# A stretch that is this many times longer in one step than in the median step comes only now and then.
_NOW_AND_THEN = 3.0


class Rare(Struct, frozen=True):
    """Steps that have far more Python than most. longer: which of the profiled ones."""

    longer: tuple[int, ...]

    def of(self, place: Block, lines: Lines, python: Intervals, steps: Steps) -> float | None:
        """The part of what makes these steps long that is this place's; None where its Python is in other steps, too.

        1 where the steps in which its lines ran are not known.
        """
        wanted = {line.source.place for line in place.lines}
        mine = [at for at, source in enumerate(lines.sources) if source.place in wanted]
        spans = lines.spans[np.isin(lines.span_source, mine)] if len(lines.spans) else lines.spans
        if not len(spans):
            return 1.0
        if not set(_longer(python_ns(intersect(spans, python), steps))) & set(self.longer):
            return None
        length_ns = np.asarray(steps.profiled_us) * 1e3
        excess_ns = float((length_ns[[*self.longer]] - np.median(length_ns)).sum())
        spent_ns = sum(total(intersect(spans, steps.spans[at][None])) for at in self.longer)
        return min(spent_ns / excess_ns, 1.0) if excess_ns > 0 else 1.0


def now_and_then(python: Intervals, steps: Steps, every: int | None, kept_waiting: bool) -> tuple[Rare | None, float]:
    """The steps that have far more Python than most; and µs per step of such steps that nothing explains.

    A single one: somebody took the core, or it is too rare for this window to tell.
    every: every so many un-profiled steps one is long: so many of them are, and of others somebody took the core.
    kept_waiting: somebody took the core again and again, and which of the steps did no work cannot be told.
    """
    each = python_ns(python, steps)
    longer = _longer(each)
    if every is not None:
        turns = max(round(steps.count / every), 1)
        known = sorted(longer, key=lambda at: -each[at])[:turns]
    else:
        known = longer if len(longer) > 1 or steps.count <= 2 else []
    if kept_waiting:
        known = []
    unknown_ns = sum(each[at] - float(np.median(each)) for at in longer if at not in known)
    rare = Rare(tuple(sorted(known))) if known and (every is not None or len(known) > 1) else None
    return rare, steps.per_step_us(unknown_ns)


def python_ns(python: Intervals, steps: Steps) -> list[int]:
    """Python of each profiled step."""
    return [total(intersect(python, span[None])) for span in steps.spans]


def _longer(each_ns: list[int]) -> list[int]:
    typical = float(np.median(each_ns))
    return [at for at, ns in enumerate(each_ns) if ns > _NOW_AND_THEN * typical]
