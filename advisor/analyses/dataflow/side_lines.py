"""Lines of the user's whose ops make nothing that the training reads."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from advisor.analyses.dataflow.needs import Needs
from advisor.analyses.dataflow.observed_ops import ObservedOps
from advisor.analyses.lines.lines import Lines
from advisor.model import Source

# Of the ops of such a line so many may be needed, as those that prepare what others of the step read, too.
_NEEDED = 0.1


class SideLines(Struct, frozen=True, eq=False):
    """lines: (file, line) with ops in the profiled steps, hardly any of which makes what the training needs."""

    lines: frozenset[tuple[str, int]]

    @classmethod
    def compute(cls, observed: ObservedOps, needs: Needs, lines: Lines) -> SideLines:
        """The lines. Missing where it is not known what the training needs."""
        every: Counter[tuple[str, int]] = Counter()
        needed: Counter[tuple[str, int]] = Counter()
        for rows, wanted in zip(observed.places, needs.needed, strict=True):
            for place, row in enumerate(rows.tolist()):
                where = lines.where_op(row) if row >= 0 else None
                if where is not None:
                    every[where.file, where.line] += 1
                    needed[where.file, where.line] += bool(wanted[place])
        return cls(frozenset(at for at, ops in every.items() if needed[at] <= _NEEDED * ops))

    def has(self, *places: Source | None) -> bool:
        """Whether one of these places is such a line."""
        return any(place is not None and (place.file, place.line) in self.lines for place in places)
