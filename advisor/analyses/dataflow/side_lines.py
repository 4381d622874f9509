"""Lines of the user's whose ops make nothing that the training reads."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.dataflow.needs import Needs
from advisor.analyses.dataflow.observed_ops import ObservedOps
from advisor.analyses.lines.lines import Lines
from advisor.model import Source
from advisor.trace.events import Ints, Trace

# Single numbers that Python reads: a loss, an accuracy, the outcome of a check.
_NUMBERS = ("aten::item", "aten::is_nonzero", "aten::_is_all_true", "aten::equal")
# What chooses: a number of these that Python reads may be an action.
_CHOOSES = ("aten::argmax", "aten::multinomial", "aten::max", "aten::bernoulli", "aten::randint")


class SideLines(Struct, frozen=True, eq=False):
    """Lines that ran ops, themselves or in functions that they called, whose results stay among them.

    No op of the training reads these results, no backward pass goes through them, and nothing but single numbers leaves
    them for Python, none of which was chosen (an action).

    lines: (file, line)
    always: those of them that ran ops in every profiled step
    """

    lines: frozenset[tuple[str, int]]
    always: frozenset[tuple[str, int]] = frozenset()

    @classmethod
    def compute(cls, trace: Trace, observed: ObservedOps, needs: Needs, lines: Lines) -> SideLines:
        """The lines. Missing where it is not known what the training needs."""
        by_step: list[set[int]] = []
        read: set[int] = set()
        leaving = set(observed.seen.leaving or ())
        for rows, wanted in zip(observed.places, needs.needed, strict=True):
            known = np.flatnonzero(rows >= 0).tolist()
            stacks = dict(zip(known, _stacks(trace, lines, rows[known]), strict=True))
            names = {place: trace.events.text(int(rows[place])) for place in known}
            by_step.append(set().union(*stacks.values()))
            for place in known:
                if needs.live[place] or (place in leaving and names[place] not in _NUMBERS):
                    read |= stacks[place]
            for place in range(len(rows)):
                here = stacks.get(place, set())
                for source in needs.sources[place]:
                    chosen = names.get(place) in _NUMBERS and names.get(source) in _CHOOSES
                    if chosen or (wanted[place] and source in stacks):
                        read |= stacks.get(source, set()) - (set() if chosen else here)
        every, always = set().union(*by_step), set.intersection(*by_step) if by_step else set()
        sides, kept = (
            frozenset((lines.sources[at].file, lines.sources[at].line) for at in of - read) for of in (every, always)
        )
        return cls(sides, kept)

    def has(self, *places: Source | None) -> bool:
        """Whether one of these places is such a line."""
        return any(place is not None and (place.file, place.line) in self.lines for place in places)

    def in_every_step(self, *places: Source | None) -> bool:
        """Whether one of these places is such a line, and ran in every profiled step."""
        return any(place is not None and (place.file, place.line) in self.always for place in places)


def _stacks(trace: Trace, lines: Lines, rows: Ints) -> list[set[int]]:
    """For each row the places on the stack that ran it, by index; its own line alone where stacks are not known."""
    if not lines.stacks:
        return [{at} - {-1} for at in lines.op_source[rows].tolist()] if len(lines.op_source) else [set() for _ in rows]
    middle = trace.events.start_ns[rows] + trace.events.dur_ns[rows] // 2
    span = np.searchsorted(lines.spans[:, 0], middle, side="right") - 1
    inside = (span >= 0) & (middle < lines.spans[np.maximum(span, 0), 1])
    stack = lines.span_stack[np.maximum(span, 0)]
    return [
        set(lines.stacks[at]) if there else set() for at, there in zip(stack.tolist(), inside.tolist(), strict=True)
    ]
