"""What one training loop works with: its loaders and optimizers, settings, threads and memory, garbage collections."""

from __future__ import annotations

from typing import Any

from .collector import Collector
from .facts.gc_pauses import GcPauses
from .facts.process_facts import Facts
from .steps.tracker import Tracker
from .steps.vitals import Vitals

# Of what is read as a window stops, the part that another loop may have otherwise.
_OF_A_LOOP = ("settings", "optimizers", "devices", "memory", "compile", "model", "environment")


class Seen:
    """What has trained so far: backward passes by iterator, as in `Tracker`, and optimizers."""

    def __init__(self, tracker: Tracker, collector: Collector) -> None:
        self.fed = dict(tracker.fed)
        self.beside = dict(tracker.read_beside)
        self.optimizers = set(collector.optimizers)


class LoopFacts:
    """The facts of the loop that runs, until it is left. before: what had trained when it began; None: it is the first.

    serial: iterators of loaders that were made before it.
    """

    def __init__(
        self, collector: Collector, tracker: Tracker, facts: Facts, vitals: Vitals, before: Seen | None = None
    ) -> None:
        self.collector = collector
        self.tracker = tracker
        self.facts = facts
        self.vitals = vitals
        self.before = before
        self.serial = max((max(one["serials"]) for one in collector.loaders), default=0) if before else 0
        self.told = False  # by a window
        self.left: dict[str, Any] | None = None
        collector.pauses = GcPauses()

    def leave(self, until: Seen) -> None:
        """Another loop has begun, whose first batches are none of this one's; what trained until then."""
        segment = self.tracker.segment
        now = {*self.tracker.fed, *self.tracker.read_beside, *(segment.yielded[-1:] if segment is not None else ())}
        self.left = self._gathered(until.fed, until.beside, now - until.fed.keys() - until.beside.keys())
        self.collector.timed = False

    def gathered(self) -> dict[str, Any]:
        """What passed by, with keys of `record.RankRecord`."""
        return self.left or self._gathered(self.tracker.fed, self.tracker.read_beside, set())

    def _gathered(self, fed: dict[int, int], beside: dict[int, int], theirs: set[int]) -> dict[str, Any]:
        if self.before is not None:
            fed, beside = _since(fed, self.before.fed), _since(beside, self.before.beside)
        return self.collector.record(fed, beside, self.serial, theirs)

    def of_window(self) -> dict[str, Any]:
        """All of it, for a later window, with keys of `record.LaterWindow`."""
        known = {name: self.facts.known[name] for name in _OF_A_LOOP if name in self.facts.known}
        gathered = self.gathered()
        loaders = {name: gathered[name] for name in ("loaders", "evaluation_loaders", "gc_pauses_us")}
        return known | loaders | {"vitals": self.vitals.record(False)}


def _since(now: dict[int, int], before: dict[int, int]) -> dict[int, int]:
    """What was added to these counts."""
    return {key: count - before.get(key, 0) for key, count in now.items() if count > before.get(key, 0)}
