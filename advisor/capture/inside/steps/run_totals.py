"""What the stretches of a run add up to, by kind, and where samples of them stood.

start     from the start of the watch to the end of the first training step
step      training steps of ordinary length
long      training steps that are far longer than these: other work is likely to be in them
between   stretches without a training step: batches that nothing trained on, the turn from one epoch to the next
end       after the last boundary
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..facts.source.syntax import Trees
from .stack_samples import Place
from .statements import NONE, Statements, block_of, guard_of, is_outside, loops_of, statements_of, turn_of

KINDS = START, STEP, LONG, BETWEEN, END = "start", "step", "long", "between", "end"

# Places that are told apart, and those that are written down.
MOST_PLACES, _MOST_WRITTEN = 2000, 80

# What samples have alike: the kind of their stretch, their place, their marks.
Key = tuple[str, Place, tuple[str, ...]]


class Hits:
    """Samples alike. stretches: in how many of these they are; first, last: training iterations before such a one."""

    __slots__ = ("first", "hits", "last", "stretches")

    def __init__(self, first: int) -> None:
        self.hits = self.stretches = 0
        self.first = self.last = first


class Totals:
    """Sums over stretches. usual_ns: what the long steps among them would have taken had they been ordinary.

    queued_ns: of the time, that without a core; only kinds for which the system tells.
    """

    def __init__(self) -> None:
        self.spent_ns = dict.fromkeys(KINDS, 0)
        self.count = dict.fromkeys(KINDS, 0)
        self.queued_ns: dict[str, int] = {}
        self.usual_ns = 0.0
        self.hits: dict[Key, Hits] = {}

    def copy(self) -> Totals:
        """The same, to be added to by itself."""
        other = Totals()
        other.spent_ns, other.count = dict(self.spent_ns), dict(self.count)
        other.queued_ns, other.usual_ns = dict(self.queued_ns), self.usual_ns
        for key, hits in self.hits.items():
            mine = other.hits[key] = Hits(hits.first)
            mine.hits, mine.stretches, mine.last = hits.hits, hits.stretches, hits.last
        return other

    def add(self, kind: str, length_ns: int, samples: Iterable[tuple[Place, tuple[str, ...]]], iteration: int) -> None:
        """One more stretch. iteration: training iterations before its end."""
        self.spent_ns[kind] += length_ns
        self.count[kind] += 1
        seen = set()
        for place, marks in samples:
            key = (kind, place, marks)
            hits = self.hits.get(key)
            if hits is None:
                if len(self.hits) >= MOST_PLACES:
                    continue
                hits = self.hits[key] = Hits(iteration)
            hits.hits += 1
            if key not in seen:
                seen.add(key)
                hits.stretches += 1
                hits.last = iteration

    def note(self, kind: str, places: Iterable[tuple[Place, tuple[str, ...]]]) -> None:
        """Places that are known without a sample: they have no time of their own."""
        for place, marks in places:
            self.hits.setdefault((kind, place, tuple(sorted(set(marks)))), Hits(0))

    def record(self, trees: Trees) -> dict[str, Any]:
        """The part of run.json: sums in µs, and the places with most samples."""
        most = sorted(self.hits.items(), key=lambda item: (item[1].hits > 0, -item[1].hits))
        places = [place for (_, place, _), _ in most[:_MOST_WRITTEN] if place.step_line]
        sources = {place.source for place in places}
        sources |= {one[0] for place in places for one in place.way}
        sources |= {one[0] for place in places for one in place.step_way}
        known = {source: statements_of(trees.of(source)) for source in sources}
        return {
            "spent_us": {kind: ns / 1e3 for kind, ns in self.spent_ns.items()},
            "queued_us": {kind: ns / 1e3 for kind, ns in self.queued_ns.items()},
            "count": dict(self.count),
            "usual_us": self.usual_ns / 1e3,
            "samples": [_as_record(key, hits, known) for key, hits in most[:_MOST_WRITTEN]],
        }


def _as_record(key: Key, hits: Hits, known: Mapping[str, Statements]) -> dict[str, Any]:
    kind, place, marks = key
    here = known.get(place.source, NONE)
    outermost, innermost = loops_of(place, known)
    return {
        "kind": kind,
        "file": place.file,
        "line": place.line,
        "function": place.function,
        "block": block_of(place, here.blocks),
        "guard": guard_of(place, here.guards),
        "outside": is_outside(place, known),
        "inner": list(place.inner),
        "package": place.package,
        "marks": list(marks),
        "hits": hits.hits,
        "stretches": hits.stretches,
        "first": hits.first,
        "last": hits.last,
        "loop": outermost,
        "inner_loop": innermost,
        "turn": turn_of(place, known),
        "call": place.call,
    }
