"""How long training steps took over the whole run, and at which of the script's lines they were sampled.

The run is cut into a few stretches of equally many steps. They become longer as the run does: where there are too many,
each two neighbours become one. So what is kept is as small after a million steps as after a hundred.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import zip_longest
from random import Random
from statistics import median_low
from typing import Any

from .stack_samples import Place

# Stretches: at most so many, at least half of them once the run is longer than that.
_MOST = 48
# Steps of the first ones: what is read at the end of each takes some ten microseconds.
_FIRST_SIZE = 8
# Step times kept of a stretch, drawn at random, so that no rhythm of the steps decides; their median is what counts.
_MOST_KEPT = 16
# Lines that are written down: those with most samples.
_MOST_LINES = 40

# file, line, function of the user's innermost line, and the line of the loop that it was reached from.
Line = tuple[str, int, str, str, int]


class Stretch:
    """Steps in a row. first: iterations before it; kept_ns: some of their times; queued_ns: without a core in it."""

    __slots__ = ("first", "kept_ns", "lines", "queued_ns", "resident", "samples", "steps", "sum_ns")

    def __init__(self, first: int) -> None:
        self.first = first
        self.steps = self.sum_ns = self.samples = 0
        self.kept_ns: list[int] = []
        self.lines: dict[Line, int] = {}
        self.queued_ns: int | None = None
        self.resident: int | None = None

    def join(self, later: Stretch, chance: Random) -> None:
        """Takes in the stretch that follows."""
        self.steps += later.steps
        self.sum_ns += later.sum_ns
        self.samples += later.samples
        self.kept_ns += later.kept_ns
        if len(self.kept_ns) > _MOST_KEPT:
            self.kept_ns = chance.sample(self.kept_ns, _MOST_KEPT)
        for line, hits in later.lines.items():
            self.lines[line] = self.lines.get(line, 0) + hits
        known = None not in (self.queued_ns, later.queued_ns)
        self.queued_ns = (self.queued_ns or 0) + (later.queued_ns or 0) if known else None
        self.resident = later.resident

    def usual_ns(self) -> int:
        """What an ordinary step of it took: the median of the kept times."""
        return median_low(self.kept_ns)

    def own_ns(self) -> float:
        """The same without the share of the stretch in which the loop's thread had no core."""
        return self.usual_ns() * (1 - min((self.queued_ns or 0) / max(self.sum_ns, 1), 1.0))


class StepTrend:
    """The stretches of one rank's run; used on the loop's thread alone.

    queued_ns: for how long that thread was ready and had no core so far; resident: bytes that the process holds. Both
    are None where the system does not tell; they are read when a stretch ends.
    """

    def __init__(self, queued_ns: Callable[[], int | None], resident: Callable[[], int | None]) -> None:
        self.read_queued_ns = queued_ns
        self.read_resident = resident
        self.chance = Random(0)  # its own: the script's random numbers stay what they are
        self.size = _FIRST_SIZE  # steps of a stretch
        self.closed = 0  # stretches so far, before some became one
        self.done: list[Stretch] = []
        self.open = Stretch(0)
        self.queued_ns: int | None = None

    def step(self, length_ns: int, iteration: int) -> None:
        """A training step is over, the iteration of that number (from 1)."""
        stretch = self.open
        if not stretch.steps:
            stretch.first = iteration - 1
            if not self.done:
                self.queued_ns = self.read_queued_ns()
        stretch.steps += 1
        stretch.sum_ns += length_ns
        if stretch.steps <= _MOST_KEPT:
            stretch.kept_ns.append(length_ns)
        elif (at := int(self.chance.random() * stretch.steps)) < _MOST_KEPT:
            stretch.kept_ns[at] = length_ns  # each step of the stretch is kept with the same probability
        if stretch.steps >= self.size:
            self._close()

    def sampled(self, places: Iterable[Place]) -> None:
        """Where the loop's thread stood in the training step that is about to end."""
        for place in places:
            stretch = self.open
            stretch.samples += 1
            file, line, function = place.inner if place.inner[0] else (place.file, place.line, place.function)
            if file:
                key = (file, line, function, place.file, place.line)
                stretch.lines[key] = stretch.lines.get(key, 0) + 1

    def latest_ns(self, stretches: int) -> list[float]:
        """Ordinary steps of the latest whole stretches, or of all, without their part of the time without a core."""
        return [one.own_ns() for one in self.done[-stretches:]]

    def _close(self) -> None:
        before, self.queued_ns = self.queued_ns, self.read_queued_ns()
        if before is not None and self.queued_ns is not None:
            self.open.queued_ns = self.queued_ns - before
        self.open.resident = self.read_resident()
        self.done.append(self.open)
        self.closed += 1
        if len(self.done) == _MOST:
            for first, second in zip_longest(self.done[::2], self.done[1::2]):
                first.join(second, self.chance)
            self.done = self.done[::2]
            self.size *= 2
        self.open = Stretch(0)

    def record(self) -> dict[str, Any]:
        """The part of run.json: whole stretches, and the lines that were sampled most in them."""
        hits: dict[Line, int] = {}
        for stretch in self.done:
            for line, count in stretch.lines.items():
                hits[line] = hits.get(line, 0) + count
        most = sorted(hits, key=lambda line: -hits[line])[:_MOST_LINES]
        return {
            "first": [one.first for one in self.done],
            "steps": [one.steps for one in self.done],
            "usual_us": [one.usual_ns() / 1e3 for one in self.done],
            "spent_us": [one.sum_ns / 1e3 for one in self.done],
            "queued_us": [None if one.queued_ns is None else one.queued_ns / 1e3 for one in self.done],
            "resident_bytes": [one.resident for one in self.done],
            "samples": [one.samples for one in self.done],
            "lines": [
                {
                    **dict(zip(("file", "line", "function", "loop_file", "loop_line"), line, strict=True)),
                    "hits": [one.lines.get(line, 0) for one in self.done],
                }
                for line in most
            ],
        }
