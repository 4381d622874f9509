"""Neighbouring lines of the user's code as one place with one cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from advisor.api import LineCost, Saving, Scale, Source, Stretch, Undilated, together

# A line and the next but one are one place: between them stands a bracket, an `else`, a line that costs nothing.
_NEAR = 2
# More than the three most expensive lines is a profile, not advice.
_LINES = 3
# From here on a line is Python, and not the dispatch of its ops: clipping gradients has a third, copying a state half.
_PYTHON = 0.4


@dataclass(frozen=True, slots=True)
class Block:
    """Lines of one file, most expensive first; times in profiled µs per step, what they wait for a loader left out.

    work         their time and rows by part of the step, what they wait for a loader left out
    backward_us  the part of the backward pass that their ops cause; backward_rows: ops recorded in that
    """

    lines: tuple[LineCost, ...]
    us: float
    python_us: float
    work: Stretch
    backward_us: float
    backward_rows: float

    @property
    def where(self) -> tuple[Source, ...]:
        """The most expensive lines."""
        return tuple(line.source for line in self.lines[:_LINES])

    @property
    def place(self) -> str:
        """`train.py:31` or `train.py:31-35`, with the function where it has a name."""
        first = self.lines[0].source
        numbers = sorted(line.source.line for line in self.lines)
        span = f"{numbers[0]}-{numbers[-1]}" if numbers[0] < numbers[-1] else f"{numbers[0]}"
        named = first.function and not first.function.startswith("<")
        said = f"{first.file.rpartition('/')[2]}:{span}" + (f", in `{first.function}`" if named else "")
        return said + (" (the line is where the function starts)" if first.precision == "function" else "")

    def whole(self, undilated: Undilated) -> Stretch:
        """The work of the lines and of the backward pass that they cause."""
        return self.work + undilated.in_part("backward", self.backward_us, self.backward_rows)

    def share(self, undilated: Undilated) -> tuple[float, float]:
        """(low, high) share of the un-profiled step that this place takes."""
        return undilated.share(self.whole(undilated))

    def saving(self, undilated: Undilated, scale: Scale, kept: tuple[float, float], how: str) -> Saving:
        """What it gives back where `kept` (least, most) of its time stays."""
        low, high = self.share(undilated)
        return Saving(low * (1 - kept[1]) * scale.step_us, high * (1 - kept[0]) * scale.step_us, "modelled", how)


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
    )


def blocks(lines: Iterable[LineCost]) -> Iterator[Block]:
    """The lines grouped with their neighbours, most expensive place first."""
    groups: list[list[LineCost]] = []
    for line in sorted(lines, key=lambda line: (line.source.file, line.source.line)):
        last = groups[-1][-1].source if groups else None
        if last and last.file == line.source.file and line.source.line - last.line <= _NEAR:
            groups[-1].append(line)
        else:
            groups.append([line])
    yield from sorted(map(block, groups), key=lambda one: -one.us)


def is_python(line: LineCost) -> bool:
    """Whether a line spends its time in long stretches of Python, not in ops and what calling them costs."""
    return line.python_us > 0 and line.python_us >= _PYTHON * (line.us - line.parts.get("input", 0.0))
