"""Loops, periodic conditions and `with` statements in the text of a file, and which of them are around a line."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from .stack_samples import Place

Statement = ast.For | ast.AsyncFor | ast.While | ast.With | ast.AsyncWith | ast.If
Span = tuple[int, int]  # first and last line
Loop = tuple[str, int, str]  # file, line and function of its statement
_NO_LOOP: Loop = ("", 0, "")


class Statements(NamedTuple):
    """Those of one file, from their first line: loops and guards to the end of their body, blocks to their own end."""

    loops: list[Span]
    guards: list[Span]
    blocks: list[Span]  # loops and `with` statements
    comprehensions: list[Span]


NONE = Statements([], [], [], [])
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def among(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, Statement]]:
    """(kind, statement) of these nodes: `loop`, `with`, or `guard`, an `if` with a remainder (`step % 100`)."""
    for node in nodes:
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            yield "loop", node
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            yield "with", node
        elif isinstance(node, ast.If) and _has_remainder(node.test):
            yield "guard", node


def body_of(statement: Statement) -> Span:
    """The lines of its body, without an `else`."""
    return statement.body[0].lineno, max(one.end_lineno or one.lineno for one in statement.body)


def statements_of(tree: ast.Module | None) -> Statements:
    """The statements of a file; none where it has no tree."""
    if tree is None:
        return NONE
    found = Statements([], [], [], [])
    nodes = list(ast.walk(tree))
    repeating = (one for one in nodes if isinstance(one, _COMPREHENSIONS))
    found.comprehensions.extend((one.lineno, one.end_lineno or one.lineno) for one in repeating)
    for kind, node in among(nodes):
        if kind != "with":
            (found.loops if kind == "loop" else found.guards).append((node.lineno, body_of(node)[1]))
        if kind != "guard":
            found.blocks.append((node.lineno, node.end_lineno or node.lineno))
    return found


def loops_of(place: Place, known: Mapping[str, Statements]) -> tuple[Loop, Loop]:
    """(file, line, function) of the outermost and of the innermost loop below a place, in what that calls.

    Both are empty where there is none.
    """
    found: list[Loop] = []
    for source, file, line, function in place.way if place.step_line else ():
        here = known.get(source, NONE)
        around = [first for first, last in here.loops if first < line <= last]
        around += [first for first, last in here.comprehensions if first <= line <= last]
        found += [(file, first, function) for first in sorted(around)]
    return (found[0], found[-1]) if found else (_NO_LOOP, _NO_LOOP)


def turn_of(place: Place, known: Mapping[str, Statements]) -> Loop:
    """(file, line, function) of the line that runs in the outermost of these loops, in the function that holds it."""
    outermost, _ = loops_of(place, known)
    found = ((file, line, name) for _, file, line, name in place.way if (file, name) == (outermost[0], outermost[2]))
    return next(found, _NO_LOOP) if outermost[0] else _NO_LOOP


def block_of(place: Place, blocks: Iterable[Span]) -> int:
    """The first line of the largest block around a place that the training step is not in; else its line.

    0 in a function that the way to the training step does not lead through.
    """
    return min(_around(place, blocks), default=place.line) if place.step_line else 0


def guard_of(place: Place, guards: Iterable[Span]) -> int:
    """The line of the innermost guard around a place that the training step is not in; 0: there is none."""
    return max(_around(place, guards), default=0) if place.step_line else 0


def is_outside(place: Place, known: Mapping[str, Statements]) -> bool:
    """Whether a place lies outside of the innermost loop around the training step: it comes once in each outer turn.

    That loop may be in a function that the place's own calls beside it, as one that trains for an epoch.
    """
    if not place.step_line:
        return False
    if any(first < line <= last for file, line in place.step_way for first, last in known.get(file, NONE).loops):
        return True
    around = [span for span in known.get(place.source, NONE).loops if span[0] < place.step_line <= span[1]]
    return bool(around) and not max(around)[0] <= place.line <= max(around)[1]


def _around(place: Place, spans: Iterable[Span]) -> list[int]:
    """First lines of those that hold the place and not the training step."""
    return [first for first, last in spans if first <= place.line <= last and not first <= place.step_line <= last]


def _has_remainder(test: ast.expr) -> bool:
    return any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) for node in ast.walk(test))
