"""Where the text of a file makes the container that a variable or an attribute holds."""

from __future__ import annotations

import ast
from collections.abc import Iterator

Assignment = ast.Assign | ast.AnnAssign


def made_at(name: str, kind: str, tree: ast.Module | None) -> int:
    """The line at which something of that name gets its container; 0 unless one place does.

    What it gets as an argument, or from itself (`x = np.append(x, 1)`), is made elsewhere. Of several places
    those count that show the type: `deque(…)`, `[…]`.
    """
    nodes = [node for node in (ast.walk(tree) if tree else ()) if isinstance(node, Assignment)]
    makes = [node for node in nodes if name in _given(node) and _makes(node.value, name)]
    shown = [node for node in makes if _shows(node.value, kind)]
    lines = {node.lineno for node in shown or makes}
    return lines.pop() if len(lines) == 1 else 0


def _given(node: Assignment) -> Iterator[str]:
    """The names that an assignment gives something, those in a tuple one by one."""
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        for one in target.elts if isinstance(target, ast.Tuple) else [target]:
            yield _name(one)


def _makes(value: ast.expr | None, name: str) -> bool:
    """Whether an expression makes what it gives, and not from what this name holds."""
    if value is None or isinstance(value, ast.Constant | ast.Name | ast.Attribute):
        return False
    return all(_name(one) != name for one in ast.walk(value))


def _shows(value: ast.expr | None, kind: str) -> bool:
    """Whether an expression, or one of a tuple, shows that it makes a container of this type."""
    if isinstance(value, ast.Tuple):
        return any(_shows(one, kind) for one in value.elts)
    if isinstance(value, ast.Call):
        return _name(value.func) == kind
    return isinstance(value, ast.List | ast.ListComp) if kind == "list" else False


def _name(node: ast.AST) -> str:
    """`memory` of `memory` and `self.memory`; nothing of any other expression."""
    return getattr(node, "attr", getattr(node, "id", "")) if isinstance(node, ast.Name | ast.Attribute) else ""
