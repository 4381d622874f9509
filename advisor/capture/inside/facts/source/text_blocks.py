"""Statements of the script's text that repeat other lines, let them run now and then, or give them what they read.

And what loops count by comparing whole arrays with their variable, and which loops have iterations that need no other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...steps.statements import among, body_of
from ..model import class_counts
from .apart_loops import ApartLoops
from .script_text import ScriptText

Block = tuple[str, int, int, int]  # kind, line of the statement, first and last of the lines: `record.TextBlock`

# Of one file: a file of 10,000 lines has some hundred.
_MOST_BLOCKS = 1000


def blocks(text: ScriptText) -> dict[str, list[Block]]:
    """For each file loops, those that are apart, `if`s with a remainder, `with`s whose name a line reads, counts."""
    found: dict[str, list[Block]] = {}
    apart = ApartLoops(text)
    for file, node in text.nodes("for ", "while ", "with ", "if "):
        mine = found.setdefault(file, [])
        if len(mine) < _MOST_BLOCKS:
            mine += _of(node)
            if isinstance(node, ast.For) and apart.is_apart(node):
                mine.append(("apart", node.lineno, *body_of(node)))
    return {file: sorted(every) for file, every in found.items() if every}


def _of(node: ast.AST) -> Iterator[Block]:
    for kind, statement in among((node,)):
        if not isinstance(statement, (ast.With, ast.AsyncWith)):
            yield kind, statement.lineno, *body_of(statement)
            if isinstance(statement, (ast.For, ast.AsyncFor)):
                counts = class_counts.counting(statement)
                yield from (("counts", statement.lineno, one.lineno, one.end_lineno or one.lineno) for one in counts)
            continue
        variables = (item.optional_vars for item in statement.items if item.optional_vars)
        given = {one.id for variable in variables for one in _names(variable, ast.Store)}
        reads = (one.lineno for each in statement.body for one in _names(each, ast.Load) if one.id in given)
        yield from ((kind, statement.lineno, line, line) for line in sorted(set(reads)))


def _names(node: ast.AST, use: type[ast.expr_context]) -> Iterator[ast.Name]:
    return (one for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, use))
