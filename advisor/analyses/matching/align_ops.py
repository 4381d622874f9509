"""Which op of one step each op of another is, where the two do not turn equally often."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from advisor.trace.events import Ints

# Where the next op is another one, it goes on where as many ops follow in the same order: longest first, and fewer than
# three of them are alike in most places.
_ALIKE = (32, 8, 3)
# Ops beside each other, of which one step runs some that the other does not.
_NEAR = 16


class SameTurns:
    """The ops of a step, in order, with which those of other steps are compared."""

    def __init__(self, known: Sequence[str]) -> None:
        self.known = tuple(known)
        self._places: dict[int, dict[tuple[str, ...], list[int]]] = {}  # by how many are alike, and these: where

    def of(self, names: Sequence[str]) -> Ints:
        """For each of these names the place of the op that it is, -1 where none is known to be.

        Ops follow each other as here. A loop that turns more often goes back to the last turn that is alike, one that
        turns less often goes ahead, and what this step does not have is left out.
        """
        names = tuple(names)
        if self.known == names:
            return np.arange(len(names))
        found = np.full(len(names), -1, np.int64)
        at = left = 0  # the place that follows, and the one that was left for another
        for index, name in enumerate(names):
            if at >= len(self.known) or self.known[at] != name:
                place = self._place(names, index, at, left)
                if place < 0:
                    continue
                self._catch_up(names, found, index, place, at)
                at, left = place, left if place == left else at
            found[index] = at
            at += 1
        return found

    def _catch_up(self, names: tuple[str, ...], found: Ints, index: int, place: int, at: int) -> None:
        """Ops in front of `index` that had no place: those in front of `place`, where it lies ahead of `at`."""
        least = max(at, place - _NEAR) if place >= at else place
        while index and found[index - 1] < 0 and place > least:
            index -= 1
            same = next((one for one in range(place - 1, least - 1, -1) if self.known[one] == names[index]), -1)
            if same >= 0:
                found[index] = place = same

    def _place(self, names: tuple[str, ...], index: int, at: int, left: int) -> int:
        """Where the ops from `index` on follow, -1 where nowhere: where it left, else next to `at`, rather ahead."""
        for alike in _ALIKE:
            wanted = names[index : index + alike]
            if self.known[left : left + alike] == wanted:
                return left
            if places := self._follow(alike).get(wanted):
                ahead = bisect_left(places, at)
                return min(places[max(ahead - 1, 0) : ahead + 1], key=lambda place: (abs(place - at), -place))
        return -1

    def _follow(self, alike: int) -> dict[tuple[str, ...], list[int]]:
        if alike not in self._places:
            found = self._places[alike] = defaultdict(list)
            for place in range(len(self.known) - alike + 1):
                found[self.known[place : place + alike]].append(place)
        return self._places[alike]
