"""Whether a turn of a loop needs what a call in an earlier turn returned, by the loop's text.

What the call's statement assigns, and what is computed from that or told of it (`env.step(action)`), is followed
through the loop's body. The turns are apart if nothing of that reaches the call again, nor ends the loop.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..facts.source.syntax import own

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_Loop = ast.For | ast.AsyncFor | ast.While
# A fixed point is reached after as many rounds as a chain of names has links.
_MOST_ROUNDS = 20


def turns_apart(tree: ast.Module | None, line: int) -> tuple[int, int, bool] | None:
    """First and last line of the innermost loop around a line of its function, and whether its turns are apart."""
    if tree is None:
        return None
    function = max((one for one in ast.walk(tree) if _defines(one, line)), key=_first, default=tree)
    around = [one for one in own(function) if isinstance(one, _LOOPS) and one.body[0].lineno <= line <= _last(one)]
    inner = max(around, key=_first, default=None)
    within = inner or function
    repeats = [one for one in own(within) if isinstance(one, _COMPREHENSIONS) and one.lineno <= line <= _last(one)]
    if repeats:
        most = max(repeats, key=_first)
        return _first(most), _last(most), True
    if inner is None:
        return None
    return inner.lineno, _last(inner), isinstance(inner, (ast.For, ast.AsyncFor)) and _apart(inner, line)


def _apart(loop: _Loop, line: int) -> bool:
    statements = [one for one in own(loop) if isinstance(one, ast.stmt) and one is not loop]
    mine = [one for one in statements if _header(one)[0] <= line <= _header(one)[1]]
    if not mine:
        return False
    call = max(mine, key=_first)
    if isinstance(call, (ast.If, ast.While)) and _ends(call):
        return False
    tainted = set(_targets(call)) | set(_told(call, None))
    for _ in range(_MOST_ROUNDS):
        before = len(tainted)
        for one in statements:
            if any(_is(name, tainted) for name in _reads(one)):
                tainted |= set(_targets(one)) | set(_told(one, tainted))
                if isinstance(one, (ast.If, ast.While)) and _ends(one):
                    return False
        if len(tainted) == before:
            break
    given = set(_given(call)) | (set(_reads(loop)) if isinstance(loop, (ast.For, ast.AsyncFor)) else set())
    return not any(_is(name, tainted) for name in given)


def _is(name: str, tainted: set[str]) -> bool:
    """`self.state` where `self`, `self.state` or `self.state.hidden` is tainted."""
    return any(name == one or name.startswith(f"{one}.") or one.startswith(f"{name}.") for one in tainted)


def _parts(statement: ast.stmt) -> Iterator[ast.AST]:
    """What a statement itself evaluates, without the statements of its body."""
    for child in ast.iter_child_nodes(statement):
        if not isinstance(child, (ast.stmt, ast.ExceptHandler)):
            yield child


def _names(node: ast.AST, use: type[ast.expr_context]) -> Iterator[str]:
    """Dotted names: `env`, `self.model`."""
    if isinstance(node, (ast.Name, ast.Attribute)) and (name := _dotted(node)):
        if isinstance(node.ctx, use):
            yield name
        return
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        # `out[i] = …` changes `out` and reads nothing of it.
        if use is ast.Store:
            yield from (one for one in (_dotted(node.value),) if one)
        else:
            yield from _names(node.slice, use)
        return
    for child in ast.iter_child_nodes(node):
        yield from _names(child, use)


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""


def _reads(statement: ast.stmt) -> Iterator[str]:
    for part in _parts(statement):
        yield from _names(part, ast.Load)


def _targets(statement: ast.stmt) -> Iterator[str]:
    for part in _parts(statement):
        yield from _names(part, ast.Store)


def _told(statement: ast.stmt, tainted: set[str] | None) -> Iterator[str]:
    """Objects a method of which is called with something tainted; of None, with what another call returned."""
    for part in _parts(statement):
        for call in ast.walk(part):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and _takes(call, tainted):
                yield from (one for one in (_dotted(call.func.value),) if one)


def _takes(call: ast.Call, tainted: set[str] | None) -> bool:
    given = [*call.args, *(one.value for one in call.keywords)]
    if tainted is None:
        return any(isinstance(one, ast.Call) for each in given for one in ast.walk(each))
    return any(_is(name, tainted) for each in given for name in _names(each, ast.Load))


def _given(call: ast.stmt) -> Iterator[str]:
    """Names that a statement reads for its innermost calls: not where it collects what they return."""
    collects = set(_told(call, None))
    for part in _parts(call):
        if isinstance(call, ast.AugAssign) and part is call.target:
            continue
        yield from (name for name in _names(part, ast.Load) if not any(name.startswith(f"{one}.") for one in collects))


def _ends(statement: ast.stmt) -> bool:
    return any(isinstance(one, (ast.Break, ast.Return)) for one in own(statement))


def _defines(node: ast.AST, line: int) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.lineno < line <= _last(node)


def _header(statement: ast.stmt) -> tuple[int, int]:
    """Lines of a statement, without its body."""
    body = getattr(statement, "body", None)
    return statement.lineno, body[0].lineno - 1 if body else _last(statement)


def _first(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)


def _last(node: ast.AST) -> int:
    return getattr(node, "end_lineno", None) or _first(node)
