"""What the stretches of a run add up to, by kind, and where samples of them stood.

start     from the start of the watch to the end of the first training step
step      training steps of ordinary length
long      training steps that are far longer than these: other work is likely to be in them
between   stretches without a training step: batches that nothing trained on, the turn from one epoch to the next
end       after the last boundary
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable
from typing import Any

from .stack_samples import Place

KINDS = START, STEP, LONG, BETWEEN, END = "start", "step", "long", "between", "end"

# Places that are told apart, and those that are written down.
MOST_PLACES, _MOST_WRITTEN = 2000, 80

# What samples have alike: the kind of their stretch, their place, their marks.
Key = tuple[str, Place, tuple[str, ...]]
# First and last line of a loop, or of a `with`.
Block = tuple[int, int]


class Hits:
    """Samples alike. stretches: in how many of these they are; first, last: training iterations before such a one."""

    __slots__ = ("first", "hits", "last", "stretches")

    def __init__(self, first: int) -> None:
        self.hits = self.stretches = 0
        self.first = self.last = first


class Totals:
    """Sums over stretches. usual_ns: what the long steps among them would have taken had they been ordinary."""

    def __init__(self) -> None:
        self.spent_ns = dict.fromkeys(KINDS, 0)
        self.count = dict.fromkeys(KINDS, 0)
        self.usual_ns = 0.0
        self.hits: dict[Key, Hits] = {}
        self.left_out = 0

    def copy(self) -> Totals:
        """The same, to be added to by itself."""
        other = Totals()
        other.spent_ns, other.count = dict(self.spent_ns), dict(self.count)
        other.usual_ns, other.left_out = self.usual_ns, self.left_out
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
                    self.left_out += 1
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

    def record(self) -> dict[str, Any]:
        """The part of run.json: sums in µs, and the places with most samples."""
        most = sorted(self.hits.items(), key=lambda item: (item[1].hits > 0, -item[1].hits))
        left_out = self.left_out + sum(hits.hits for _, hits in most[_MOST_WRITTEN:])
        places = [place for (_, place, _), _ in most[:_MOST_WRITTEN] if place.step_line]
        sources = {source for place in places for source in (place.source, *(one[0] for one in place.way))}
        trees = {source: parsed(source) for source in sources}
        blocks = {source: blocks_of(tree) for source, tree in trees.items()}
        guards = {source: guards_of(tree) for source, tree in trees.items()}
        loops = {source: loops_of(tree) for source, tree in trees.items()}
        return {
            "spent_us": {kind: ns / 1e3 for kind, ns in self.spent_ns.items()},
            "count": dict(self.count),
            "usual_us": self.usual_ns / 1e3,
            "samples": [
                _as_record(key, hits, blocks, guards) | {"loop": loop_of(key[1], loops)}
                for key, hits in most[:_MOST_WRITTEN]
            ],
            "samples_left_out": left_out,
        }


def _as_record(key: Key, hits: Hits, blocks: dict[str, list[Block]], guards: dict[str, list[Block]]) -> dict[str, Any]:
    kind, place, marks = key
    return {
        "kind": kind,
        "file": place.file,
        "line": place.line,
        "function": place.function,
        "block": block_of(place, blocks.get(place.source, [])),
        "guard": guard_of(place, guards.get(place.source, [])),
        "inner": list(place.inner),
        "package": place.package,
        "marks": list(marks),
        "hits": hits.hits,
        "stretches": hits.stretches,
        "first": hits.first,
        "last": hits.last,
    }


def parsed(source: str) -> ast.Module | None:
    """A file as it was when Python read it; None where it is not Python's, or was changed since."""
    try:
        return ast.parse("".join(linecache.getlines(source)))
    except (SyntaxError, ValueError):
        return None


def blocks_of(tree: ast.Module | None) -> list[Block]:
    """The loops and `with` statements of a file."""
    kinds = (ast.For, ast.While, ast.With)
    found = [node for node in ast.walk(tree) if isinstance(node, kinds)] if tree else []
    return [(node.lineno, node.end_lineno or node.lineno) for node in found]


def loops_of(tree: ast.Module | None) -> list[Block]:
    """The loops of a file by their bodies, each with the line of its statement."""
    found = [node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.While))] if tree else []
    return [(node.lineno, node.body[-1].end_lineno or node.lineno) for node in found]


def loop_of(place: Place, loops: dict[str, list[Block]]) -> tuple[str, int, str]:
    """File, line and function of the outermost loop below a place, in what that calls; empty where there is none."""
    for source, file, line, function in place.way if place.step_line else ():
        if around := [first for first, last in loops.get(source, []) if first < line <= last]:
            return file, min(around), function
    return "", 0, ""


def guards_of(tree: ast.Module | None) -> list[Block]:
    """The `if` statements of a file that let something happen every so many times: with a remainder (`step % 100`)."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.If) and counts(node.test)] if tree else []
    return [(node.lineno, max(one.end_lineno or one.lineno for one in node.body)) for node in found]


def counts(test: ast.expr) -> bool:
    """Whether a condition asks for a remainder."""
    return any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) for node in ast.walk(test))


def block_of(place: Place, blocks: list[Block]) -> int:
    """The first line of the largest block around a place that the training step is not in; else its line.

    0 in a function that the way to the training step does not lead through.
    """
    if not place.step_line:
        return 0
    around = [first for first, last in blocks if first <= place.line <= last and not first <= place.step_line <= last]
    return min(around, default=place.line)


def guard_of(place: Place, guards: list[Block]) -> int:
    """The line of the innermost such `if` around a place that the training step is not in; 0: there is none."""
    if not place.step_line:
        return 0
    around = [first for first, last in guards if first <= place.line <= last and not first <= place.step_line <= last]
    return max(around, default=0)
