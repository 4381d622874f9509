"""Which of the user's lines calls the code that a finding names, and does little else."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from msgspec import Struct

from advisor.analyses.lines.lines import Lines
from advisor.model import Source
from advisor.trace.events import Ints, Trace

Place = tuple[str, int]  # file and line: a comprehension has a source of its own there
Stack = tuple[Place, ...]  # the innermost first

# Share of the steps from which on a line is the one that runs the training.
RUNS_TRAINING = 0.9


class CallSites(Struct, frozen=True, eq=False):
    """Lines of the loop's thread that call each other, with their time in the profiled steps.

    sources   a source of each line
    spent_ns  for each stack of lines the time of the innermost, without what it calls
    op_stack  for each event the stack that it ran in, None where unknown;  took_ns: how long it took
    """

    sources: dict[Place, Source]
    spent_ns: dict[Stack, int]
    op_stack: Callable[[int], Stack | None]
    took_ns: Callable[[int], int]

    @classmethod
    def compute(cls, trace: Trace, lines: Lines) -> CallSites:
        """From the recorded lines; empty where none were recorded."""
        if not len(lines.span_stack):
            return cls({}, {}, lambda _: None, lambda _: 0)
        places = [source.place for source in lines.sources]
        stacks = [_without_repeats([places[index] for index in stack]) for stack in lines.stacks]
        ns = np.zeros(len(stacks), np.int64)
        np.add.at(ns, lines.span_stack, lines.spans[:, 1] - lines.spans[:, 0])
        spent: dict[Stack, int] = {}
        for stack, time in zip(stacks, ns.tolist(), strict=True):
            spent[stack] = spent.get(stack, 0) + time
        sources = dict(zip(reversed(places), reversed(lines.sources), strict=True))
        middle = trace.events.start_ns + trace.events.dur_ns // 2

        def op_stack(row: int) -> Stack | None:
            at = int(np.searchsorted(lines.spans[:, 0], middle[row], side="right")) - 1
            inside = at >= 0 and int(middle[row]) < int(lines.spans[at, 1])
            return stacks[int(lines.span_stack[at])] if inside and lines.op_source[row] >= 0 else None

        return cls(sources, spent, op_stack, lambda row: int(trace.events.dur_ns[row]))

    def of_lines(self, where: Iterable[Source]) -> tuple[Source, ...]:
        """Lines that call these and spend most of their time in them: the innermost such, then the outermost."""
        places = [source.place for source in where if source.precision == "call"]
        theirs = {stack for stack in self.spent_ns if stack[0] in places}
        first = {stack for stack in theirs if places and stack[0] == places[0]}
        found = self._above({stack: self.spent_ns[stack] for stack in first or theirs}, theirs)
        ends = dict.fromkeys([*found[:1], *found[-1:]])
        return tuple(self.sources[place] for place in ends if place not in places)

    def of_rows(self, rows: Ints, where: Iterable[Source] = (), without: Ints | None = None) -> tuple[Source, ...]:
        """The outermost line that calls what ran these events, and little else.

        where: lines reported already;  without: events that it must not run, however little they take
        """
        ns: dict[Stack, int] = {}
        for row in rows.tolist():
            if (stack := self.op_stack(row)) is not None:
                ns[stack] = ns.get(stack, 0) + self.took_ns(row)
        named = {source.place for source in where}
        apart = {
            place for row in (without.tolist() if without is not None else ()) for place in self.op_stack(row) or ()
        }
        alone = itertools.takewhile(lambda place: place not in apart, self._above(ns, set(ns)))
        return tuple(self.sources[place] for place in list(alone)[-1:] if place not in named)

    def leading_to(self, source: Source) -> tuple[Source, ...]:
        """The lines that call this one, the innermost first, up to that of the loop over steps."""
        longest = self._longest(source)
        others = [stack for stack in self.spent_ns if longest[-len(stack) :] != stack]
        # Lines around the loop are those that every other line is called from as well.
        around = min((_common(longest, stack) for stack in others), default=len(longest))
        return tuple(self.sources[place] for place in longest[1 : len(longest) - around])

    def beside(self, row: int, source: Source) -> Source | None:
        """The line that leads to this event in the function that runs the other line itself; None where one does both.

        source: the other line
        """
        stack, theirs = self.op_stack(row) or (), self._longest(source)
        shared = _common(stack, theirs)
        if shared + 1 != len(theirs) or len(stack) <= shared:
            return None
        return self.sources[stack[len(stack) - shared - 1]]

    def runs_training(self, source: Source) -> bool:
        """Whether the training runs below this line: what it leads to without a deeper one is a library's."""
        place, total = source.place, sum(self.spent_ns.values())
        return sum(ns for stack, ns in self.spent_ns.items() if place in stack) > RUNS_TRAINING * max(total, 1)

    def where_apart(self, rows: Ints) -> Source | None:
        """The line that led to these events, if other lines call the same code; None if there is only one path."""
        ns: Counter[Stack] = Counter()
        for row in rows.tolist():
            if (stack := self.op_stack(row)) is not None:
                ns[stack] += self.took_ns(row)
        taken = max(ns, key=lambda stack: (ns[stack], stack), default=())
        for at in range(1, len(taken)):
            callers = {one[at] for one in self.spent_ns if one[:at] == taken[:at] and len(one) > at}
            if callers - {taken[at]}:
                return self.sources[taken[at]]
        return None

    def _longest(self, source: Source) -> Stack:
        """The stack in which this line, innermost, takes most of its time; empty where it has none."""
        theirs = [stack for stack in self.spent_ns if stack[0] == source.place]
        return max(theirs, key=lambda stack: (self.spent_ns[stack], stack), default=())

    def _above(
        self,
        first: Mapping[Stack, int],
        theirs: set[Stack],
        *,
        least: float = 0.8,  # of the line's time, of what it calls included: below, it does something else as well
        most: float = RUNS_TRAINING,
    ) -> list[Place]:
        """The lines above the costliest of some stacks that do little else than these, the innermost first.

        first: their times;  theirs: all stacks of a finding.
        """
        inner = max(first, key=lambda stack: (first[stack], stack), default=())
        whole, part = self._shares(theirs)
        total = sum(self.spent_ns.values())
        found: list[Place] = []
        for place in inner[1:]:
            if whole[place] >= most * total or part.get(place, 0) < least * whole[place]:
                break
            found.append(place)
        return found

    def _shares(self, theirs: set[Stack]) -> tuple[dict[Place, int], dict[Place, int]]:
        """(time of each line with what it calls, the part of it in these stacks and in what they call)."""
        whole: dict[Place, int] = {}
        part: dict[Place, int] = {}
        for stack, ns in self.spent_ns.items():
            hit = next((at for at in range(len(stack)) if stack[at:] in theirs), None)
            for at, place in enumerate(stack):
                whole[place] = whole.get(place, 0) + ns
                if hit is not None and at >= hit:
                    part[place] = part.get(place, 0) + ns
        return whole, part


def _common(one: Stack, other: Stack) -> int:
    """How many lines two stacks share at their outer ends."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _without_repeats(stack: list[Place]) -> Stack:
    """A line once, where it is outermost: a comprehension is called by its own line, a recursion by itself."""
    return tuple(reversed(dict.fromkeys(reversed(stack))))
