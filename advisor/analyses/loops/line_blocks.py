"""Neighbouring lines of the user's code as one place with one cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from advisor.analyses.costs.line_costs import LineCost
from advisor.analyses.step.deprofiled import Deprofiled, Stretch, together
from advisor.constants import constant
from advisor.model import Source

# What takes the place of a loop, as ops over all elements, took up to three tenths of it in most measured rewrites.
MOST_KEPT = constant("share.loop_kept").value
# A loop of fewer iterations may be the layers of a model, or a few calls.
LOOP_ITERATIONS = 16
# A line and the next but one are one place: between them stands a bracket, an `else`, a line that costs nothing.
NEAR = 2
# More than the three most expensive lines is a profile, not advice.
_LINES = 3
# A line turns where it runs so often in a call of its function: the head of a loop of two turns runs three times, a
# `with` twice.
MORE_OFTEN = 2.5
# From here on a line is Python, and not the dispatch of its ops: clipping gradients has a third, copying a state half.
_PYTHON = 0.4
# What belongs to a loop runs in at least half of its turns: conditions leave some out.
_MOST_TURNS = 0.5


class Block(Struct, frozen=True):
    """Lines of one file, most expensive first; times in profiled µs per step, without waits for a loader.

    work         their time and ops by part of the step, without waits for a loader
    backward_us  the part of the backward pass that their ops cause; backward_rows, backward_weight: of ops in that
    beyond_us    time of these ops beyond their call overhead; None if not known
    calls        how often the function of the most expensive line runs, per step
    loops        numbers of the lines that are statements of loops in the file's text; None if that was not read
    turned_by    where another function calls that of the most expensive line again and again: the statement of the
                 loop there, where it is known, then the line that calls
    """

    lines: tuple[LineCost, ...]
    us: float
    python_us: float
    work: Stretch
    backward_us: float
    backward_rows: float
    backward_weight: float
    beyond_us: float | None
    calls: float = 1.0
    loops: frozenset[int] | None = None
    turned_by: tuple[Source, ...] = ()

    @property
    def where(self) -> tuple[Source, ...]:
        """The most expensive lines."""
        return tuple(line.source for line in self.lines[:_LINES])

    @property
    def heads(self) -> tuple[Source, ...]:
        """The statements of the loops around the most expensive line, the two outermost; else those of its callers.

        A line above the loop that runs once belongs to the place (`total = 0.0`), but is not a statement of the loop.
        """
        costly = self.lines[0].source.line
        above = sorted((one for one in self._around if one.source.line < costly), key=lambda one: one.source.line)
        # A function that a library calls for each of its modules runs more often than the line that calls the library.
        found = [line.source for line in loops_around(above, self.calls)]
        return (
            tuple(source for source in found if self.loops is None or source.line in self.loops)[:2] or self.turned_by
        )

    @property
    def _around(self) -> Sequence[LineCost]:
        return next(group for group in _neighbours(self.lines) if self.lines[0] in group)

    @property
    def place(self) -> str:
        """`train.py:31` or `train.py:31-35`, with the function where it has a name."""
        first = self.lines[0].source
        numbers = sorted(line.source.line for line in self._around)
        begin = self.heads[0].line if self.loops and self.heads and not self.turned_by else numbers[0]
        span = f"{begin}-{numbers[-1]}" if begin < numbers[-1] else f"{begin}"
        named = first.function and not first.function.startswith("<")
        said = f"{first.file.rpartition('/')[2]}:{span}" + (f", in `{first.function}`" if named else "")
        return said + (" (the line is where the function starts)" if first.precision == "function" else "")

    @property
    def is_python(self) -> bool:
        """Whether it spends its time in long runs of Python, not in ops and their call overhead."""
        return _is_python(self.python_us, self.us)

    def whole(self, deprofiled: Deprofiled) -> Stretch:
        """The work of the lines and of the backward pass of their ops."""
        behind = deprofiled.in_part("backward", self.backward_us, self.backward_rows, weight=self.backward_weight)
        return _at_most(deprofiled, self.work + behind)

    def less(self, stays: Mapping[Source, float]) -> Block:
        """The place without that share of each line. Lines that nothing is said of keep what the others do together."""
        known = [line for line in self.lines if line.source in stays]
        spent = sum(line.us for line in known)
        mean = sum(stays[line.source] * line.us for line in known) / spent if spent else 0.0
        if not any(stays.values()):
            return self
        return block(line.times(1 - stays.get(line.source, mean)) for line in self.lines)

    def share(self, deprofiled: Deprofiled) -> tuple[float, float]:
        """(low, high) share of the un-profiled step that this place takes."""
        return deprofiled.share(self.whole(deprofiled))


def loops_around(above: Sequence[LineCost], calls: float) -> list[LineCost]:
    """Of the lines above a place, in order, the statements of loops that are still open there, outermost first.

    A loop's statement runs far more often than the line above it, and what stands in the loop as often as the line
    above it or less; a loop has ended where a line runs as seldom as what was above the loop. calls: of the function.
    """
    found: list[tuple[LineCost, float]] = []  # the statement, and how often the line above it ran
    before = calls
    for line in above:
        while found and line.visits <= found[-1][1]:
            found.pop()
        # A comprehension runs its own line once for each of its turns.
        if line.visits >= MORE_OFTEN * before and not line.inner:
            found.append((line, before))
        before = line.visits
    return [line for line, _ in found]


def _at_most(deprofiled: Deprofiled, work: Stretch) -> Stretch:
    """The work with no part longer than it was recorded: a backward pass within a line was counted for two."""
    parts = zip(deprofiled.parts, work.us, strict=True)
    shares = [min(part.recorded_us / us, 1.0) if us else 1.0 for part, us in parts]

    def cut(of: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(one * share for one, share in zip(of, shares, strict=True))

    return Stretch(*map(cut, work.columns))


def block(lines: Iterable[LineCost]) -> Block:
    """The lines as one place."""
    ordered = tuple(sorted(lines, key=lambda line: -line.us))
    return Block(
        lines=ordered,
        us=sum(line.us - line.parts.get("input", 0.0) for line in ordered),
        python_us=sum(line.python_us for line in ordered),
        work=together([line.work for line in ordered]),
        backward_us=sum(line.backward_us for line in ordered),
        backward_rows=sum(line.backward_rows for line in ordered),
        backward_weight=sum(line.backward_weight for line in ordered),
        beyond_us=sum(known) if (known := [us for one in ordered if (us := one.beyond_us) is not None]) else None,
    )


def blocks(lines: Iterable[LineCost]) -> Iterator[Block]:
    """The lines grouped with their neighbours and with the line that calls them often, most expensive place first."""
    yield from sorted(map(block, with_callers(_neighbours(lines))), key=lambda one: -one.us)


def _neighbours(lines: Iterable[LineCost]) -> list[list[LineCost]]:
    groups: list[list[LineCost]] = []
    for line in sorted(lines, key=lambda line: line.source.place):
        last = groups[-1][-1].source if groups else None
        if last and last.file == line.source.file and line.source.line - last.line <= NEAR:
            groups[-1].append(line)
        else:
            groups.append([line])
    return groups


def with_callers(groups: list[list[LineCost]]) -> list[list[LineCost]]:
    """Groups of which most is called often by a line of another are one with that.

    A function that runs once in a step is a part of the step, and the line that calls it says nothing of it.
    """
    home = {line.source.place: index for index, group in enumerate(groups) for line in group}
    into = list(range(len(groups)))

    def end(index: int) -> int:
        while into[index] != index:
            index = into[index]
        return index

    for index, group in enumerate(groups):
        called: dict[int, float] = {}
        for line in group:
            caller = home.get(line.called_from) if line.called_from and line.visits >= LOOP_ITERATIONS else None
            if caller is not None and caller != index:
                called[caller] = called.get(caller, 0.0) + line.us
        most = max(called, key=called.__getitem__, default=None)
        if most is not None and 2 * called[most] > sum(line.us for line in group) and end(most) != index:
            into[index] = end(most)
    found: dict[int, list[LineCost]] = {}
    for index, group in enumerate(groups):
        found.setdefault(end(index), []).extend(group)
    return list(found.values())


def is_python(line: LineCost) -> bool:
    """Whether a line spends its time in long stretches of Python, not in ops and what calling them costs."""
    return _is_python(line.python_us, line.us - line.parts.get("input", 0.0))


def _is_python(python_us: float, us: float) -> bool:
    return python_us > 0 and python_us >= _PYTHON * us


def in_most_turns(times: float, turns: float) -> bool:
    """Whether what happens so often in a step belongs to the turns of a loop."""
    return times >= _MOST_TURNS * turns
