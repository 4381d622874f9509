"""The name of the number of steps between two gradient penalties: `if step % d_reg_every == 0:`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

# What a penalty's gradient is taken with.
WORD = "create_graph"


def names(nodes: Iterable[ast.AST]) -> set[str]:
    """The last parts of what stands behind `%` in the conditions of penalties: `d_reg_every` of `args.d_reg_every`.

    A condition is one of a penalty where its branch calls something with `create_graph=True`, or a function that does.
    """
    known = list(nodes)
    functions = (one for one in known if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)))
    taking = {one.name for one in functions if any(map(_takes, ast.walk(one)))}
    found: set[str] = set()
    for one in known:
        if isinstance(one, ast.If) and any(_takes(inner) or _called(inner) in taking for inner in _branch(one)):
            found.update(_intervals(one.test))
    return found - {""}


def _branch(node: ast.If) -> Iterator[ast.AST]:
    for statement in node.body:
        yield from ast.walk(statement)


def _takes(node: ast.AST) -> bool:
    """Whether it is a call with `create_graph=True`."""
    given = node.keywords if isinstance(node, ast.Call) else []
    return any(one.arg == WORD and isinstance(one.value, ast.Constant) and one.value.value is True for one in given)


def _called(node: ast.AST) -> str:
    return _last(node.func) if isinstance(node, ast.Call) else ""


def _intervals(test: ast.expr) -> Iterator[str]:
    for node in ast.walk(test):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            yield _last(node.right)


def _last(node: ast.AST) -> str:
    return str(getattr(node, "attr", getattr(node, "id", "")))
