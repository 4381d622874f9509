"""Statements of a loop that count elements: comparisons of whole arrays with the loop's variable, added up.

`matrix[i, j] += np.sum((truth == i) & (guess == j))`, `hits = (guess == c) & (truth == c)` and `hits.sum()`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

_ADDED_UP = ("sum", "count_nonzero", "nansum")
# What joins comparisons, element by element.
_JOINED = ("logical_and", "logical_or", "logical_not", "bitwise_and", "bitwise_or", "multiply", "mul")
# What makes numbers of them.
_CAST = ("float", "int", "long", "double", "astype", "to", "type", "byte")
_OPERATORS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Mult)


def counting(loop: ast.For | ast.AsyncFor) -> Iterator[ast.stmt]:
    """The statements in a loop that count by its own variable, those that only compare for others to count included.

    None where a comparison also selects elements (`values[label == c].mean()`): that is more than a count.
    """
    variables = {one.id for one in ast.walk(loop.target) if isinstance(one, ast.Name)}
    masks: set[str] = set()
    comparing, adding = [], []
    for statement in _statements(loop.body):
        if isinstance(statement, ast.Assign) and _is_mask(statement.value, masks, variables):
            masks |= {one.id for one in statement.targets if isinstance(one, ast.Name)}
            comparing.append(statement)
        elif any(_adds_up(node, masks, variables) for node in ast.walk(statement)):
            adding.append(statement)
    selecting = (one.slice for one in ast.walk(loop) if isinstance(one, ast.Subscript))
    if adding and not any(_mentions(one, masks, variables) for one in selecting):
        yield from (*comparing, *adding)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Simple statements of a loop in order, with those of statements in it."""
    for one in body:
        inner = [*getattr(one, "body", []), *getattr(one, "orelse", [])]
        if inner:
            yield from _statements(inner)
        else:
            yield one


def _adds_up(node: ast.AST, masks: set[str], variables: set[str]) -> bool:
    """Whether it is `sum(mask)` or `mask.sum()`, of whatever module."""
    if not isinstance(node, ast.Call) or _name(node.func) not in _ADDED_UP:
        return False
    of = [*node.args[:1], *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
    return any(_is_mask(one, masks, variables) for one in of)


def _is_mask(node: ast.expr, masks: set[str], variables: set[str]) -> bool:
    """Whether it is made of comparisons with one of the variables, or of masks, and of nothing but comparisons."""
    return _made_of_comparisons(node, masks) and _compares(node, masks, variables)


def _made_of_comparisons(node: ast.expr, masks: set[str]) -> bool:
    if isinstance(node, ast.Compare):
        return len(node.ops) == 1 and isinstance(node.ops[0], (ast.Eq, ast.NotEq))
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, _OPERATORS) and all(_made_of_comparisons(x, masks) for x in (node.left, node.right))
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Invert) and _made_of_comparisons(node.operand, masks)
    if isinstance(node, ast.Call):
        name, of = _name(node.func), [*node.args]
        if isinstance(node.func, ast.Attribute) and (name in _CAST or not _is_module(node.func.value)):
            of = [node.func.value, *(node.args if name in _JOINED else [])]
        return name in (*_JOINED, *_CAST) and bool(of) and all(_made_of_comparisons(one, masks) for one in of)
    return isinstance(node, ast.Name) and node.id in masks


def _compares(node: ast.expr, masks: set[str], variables: set[str]) -> bool:
    """Whether one of its comparisons is with a variable, or it has a mask, which is one."""
    for one in ast.walk(node):
        sides = [one.left, *one.comparators] if isinstance(one, ast.Compare) else []
        if any(isinstance(side, ast.Name) and side.id in variables for side in sides):
            return True
        if isinstance(one, ast.Name) and one.id in masks:
            return True
    return False


def _mentions(node: ast.expr, masks: set[str], variables: set[str]) -> bool:
    """Whether an index holds a mask."""
    if isinstance(node, ast.Name):
        return node.id in masks
    return not isinstance(node, ast.Constant) and _is_mask(node, masks, variables)


def _is_module(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("np", "numpy", "torch", "jnp")


def _name(node: ast.AST) -> str:
    return str(getattr(node, "attr", getattr(node, "id", "")))
