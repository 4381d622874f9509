"""The places of a finding as the way from the training step to what costs: few, the line to change first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from advisor.analyses.lines.call_sites import RUNS_TRAINING, CallSites, Place, Stack
from advisor.analyses.lines.lines import Lines
from advisor.capture.record import RankRecord, TextBlock
from advisor.model import Source
from advisor.trace.events import Trace

# Places of a finding: what is to be changed, what repeats it, where it is called from, and where the step calls that.
MOST_PLACES = 4
# A line that calls what costs has a place beside the costlier caller if so much of the time is below it: changed alone,
# one with less saves a smaller part of what a finding promises than most ranges leave open.
CALLER_SHARE = 0.25
# A loop that turns around the training step runs its statement once a step.
_TURNS_IN_STEP = 2.0


class CallPaths(Struct, frozen=True, eq=False):
    """Lines that call each other, with the statements of the text around them.

    sites    who calls whom, from the recorded lines
    blocks   of each file the loops, periodic conditions and `with` statements; empty where its text was not read
    visits   how often each line ran per step
    """

    sites: CallSites
    blocks: Mapping[str, list[TextBlock]]
    visits: Mapping[Place, float]

    @classmethod
    def compute(cls, trace: Trace, lines: Lines, record: RankRecord | None) -> CallPaths:
        """Of this rank; without recorded lines there are none, and places stay as they are."""
        sites = CallSites.compute(trace, lines)
        entered = lines.span_source[lines.entered] if len(lines.entered) else lines.span_source
        times = np.bincount(entered, minlength=len(lines.sources)) / lines.steps_count
        visits: dict[Place, float] = {}
        for source, often in zip(lines.sources, times.tolist(), strict=True):
            at = source.place
            visits[at] = max(often, visits.get(at, 0.0))
        return cls(sites, record.blocks if record else {}, visits)

    def of(self, where: tuple[Source, ...]) -> tuple[Source, ...]:
        """These places and what leads to them: statements around the first, the line that calls it, the step's line."""
        way = next((found for source in where if (found := self._way(source))), [])
        around = list(self._around(way))
        callers = list(self._callers(way))
        ends = [*way[1:2], *way[-1:]]
        sources = {(one.file, one.line): one for one in reversed(where)}
        sources |= {at: self.sites.sources[at] for at in (*around, *callers, *way) if at not in sources}
        places = dict.fromkeys([*((one.file, one.line) for one in where), *around, *ends, *callers, *way])
        heads = {(file, block.line) for file, blocks in self.blocks.items() for block in blocks}
        function = [(sources[at].file, sources[at].function) for at in way[:1]]
        own = {(one.file, one.line) for one in where}

        def rank(at: Place) -> int:
            """Its own places go first, loops and calls before others; further lines of one function say least."""
            if at in own:
                beside = (sources[at].file, sources[at].function) in function and not self._calls(way[0], at)
                return 0 if at in heads or at in way else 4 if beside else 1
            if at in callers:
                return 1  # of two lines that call it either may be the one to change
            return 2 if at in around or at in ends else 3

        every = list(places)
        # Loops go with the line of their body that the rule names first: either may be the one to change.
        loops = next((n for n, at in enumerate(every) if at not in heads or at not in own), len(every))
        first = loops + 1 if 0 < loops < min(MOST_PLACES - 1, len(every)) and every[loops] in own else 1
        kept = {*every[:first], *sorted(every[first:], key=rank)[: MOST_PLACES - first]}
        return tuple(sources[at] for at in places if at in kept)

    def _calls(self, above: Place, below: Place) -> bool:
        """Whether one line leads to the other: functions of one name, `__call__`, may call each other."""
        return any(below in stack and above in stack[stack.index(below) + 1 :] for stack in self.sites.spent_ns)

    def _way(self, source: Source) -> list[Place]:
        """The line and those that call it, the innermost first, down from the line that runs the training."""
        at = source.place
        ns: Counter[Stack] = Counter()
        for stack, spent in self.sites.spent_ns.items():
            if at in stack:
                ns[stack[stack.index(at) :]] += spent
        if source.precision != "call" or not ns:
            return []
        return list(self._in_step(max(ns, key=lambda one: (ns[one], one))))

    def _callers(self, way: list[Place]) -> Iterator[Place]:
        """The lines that call the innermost function that more than one line calls, each for a material share of it."""
        for depth in range(1, len(way)):
            inner = tuple(way[:depth])
            ns: Counter[Place] = Counter()
            for stack, spent in self.sites.spent_ns.items():
                at = stack.index(inner[0]) if inner[0] in stack else len(stack)
                if stack[at : at + depth] == inner and len(stack) > at + depth:
                    ns[stack[at + depth]] += spent
            most = [one for one, spent in ns.most_common() if spent >= CALLER_SHARE * ns.total()]
            if len(most) > 1:
                yield from (one for one in most if any(self._in_step((one,))))
                return

    def _in_step(self, stack: Stack) -> Iterator[Place]:
        """As far as a line does not run the training, nearly all of the steps."""
        total = sum(self.sites.spent_ns.values())
        for place in stack:
            if sum(ns for other, ns in self.sites.spent_ns.items() if place in other) >= RUNS_TRAINING * total:
                return
            yield place

    def _around(self, way: list[Place]) -> Iterator[Place]:
        """The `with` and the condition around the line, and the innermost loop that turns around it within a step."""
        for index, (file, line) in enumerate(way):
            blocks = sorted(self.blocks.get(file, ()), key=lambda one: -one.line)
            mine = [one for one in blocks if one.first <= line <= one.last and (file, one.line) in self.sites.sources]
            for kind in ("with", "guard") if index == 0 else ():
                yield from ((file, one.line) for one in mine if one.kind == kind)
            loop = next((one for one in mine if one.kind == "loop" and self._turns(file, one)), None)
            if loop is not None:
                yield file, loop.line
                return

    def _turns(self, file: str, loop: TextBlock) -> bool:
        return self.visits.get((file, loop.line), 0.0) >= _TURNS_IN_STEP
