"""Statements of the script's text that repeat other lines, let them run now and then, or give them what they read."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..steps.run_totals import counts
from .script_text import ScriptText

Block = tuple[str, int, int, int]  # kind, line of the statement, first and last of the lines: `record.TextBlock`

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_WITHS = (ast.With, ast.AsyncWith)
# Of one file: a file of 10,000 lines has some hundred.
_MOST_BLOCKS = 1000


def blocks(text: ScriptText) -> dict[str, list[Block]]:
    """For each file its loops, the `if`s with a remainder, and the `with` statements whose name a line reads."""
    found: dict[str, list[Block]] = {}
    for file, node in text.nodes("for ", "while ", "with ", "if "):
        mine = found.setdefault(file, [])
        if len(mine) < _MOST_BLOCKS:
            mine += _of(node)
    return {file: sorted(every) for file, every in found.items() if every}


def _of(node: ast.AST) -> Iterator[Block]:
    if isinstance(node, _LOOPS):
        yield "loop", node.lineno, *_span(node.body)
    elif isinstance(node, ast.If) and counts(node.test):
        yield "guard", node.lineno, *_span(node.body)
    elif isinstance(node, _WITHS):
        given = {one.id for item in node.items if item.optional_vars for one in _names(item.optional_vars, ast.Store)}
        reads = (one.lineno for statement in node.body for one in _names(statement, ast.Load) if one.id in given)
        yield from (("with", node.lineno, line, line) for line in sorted(set(reads)))


def _span(body: list[ast.stmt]) -> tuple[int, int]:
    return body[0].lineno, max(one.end_lineno or one.lineno for one in body)


def _names(node: ast.AST, use: type[ast.expr_context]) -> Iterator[ast.Name]:
    return (one for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, use))
