"""Loops of the script's text none of whose turns needs what an earlier one made, as far as a text can say so.

Nothing that a turn assigns may be read by the next; lists and tables may be filled, sums be added up, if no turn reads
them. What functions and modules of the script keep between calls shows in their text; a package that may keep something
(layers of spiking neurons do) ends the search, as its text is not read.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .script_text import ScriptText
from .syntax import INSIDE, own

# Packages whose functions and modules keep nothing between two calls that the second one reads.
_KNOWN = frozenset(
    {"torch", "torchvision", "torchmetrics", "numpy", "pandas", "lightning", "pytorch_lightning", "accelerate"}
    | {"transformers", "tqdm", "sklearn"}
)
_COLLECTS = ("append", "extend", "add")
_CHANGES = frozenset(
    {*_COLLECTS, "pop", "popleft", "push", "put", "get_nowait", "update", "insert", "remove", "clear", "setdefault"}
    | {"step", "reset", "write"}
)
_ALWAYS_CHANGES = frozenset({"backward", "zero_grad", "send", "recv", "seed", "manual_seed"})
# What is no view of something else: displays, arithmetic, and these functions.
_MADE = (ast.Constant, ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.BinOp, ast.UnaryOp)
_MAKES = frozenset(
    {"clone", "copy", "tensor", "array", "zeros", "ones", "empty", "full", "arange", "zeros_like", "ones_like"}
    | {"empty_like", "full_like", "new_zeros", "new_ones", "new_full", "new_empty", "rand", "randn", "randint"}
    | {"list", "dict", "set", "cat", "stack", "concatenate", "where"}
)
_ENDS = (ast.Break, ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal, ast.Delete)


class ApartLoops:
    """Which loops of the script are apart."""

    def __init__(self, text: ScriptText) -> None:
        trees = [tree for _, tree in text.trees("")]
        nodes = [node for tree in trees for node in ast.walk(tree)]
        self.functions: dict[str, list[ast.FunctionDef]] = {}
        for node in nodes:
            if isinstance(node, ast.FunctionDef):
                self.functions.setdefault(node.name, []).append(node)
        self.classes = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
        self.imported = set(_imported(nodes))
        mine = {file.rpartition("/")[2].removesuffix(".py") for file in text.sources}
        roots = {root for root, _ in self.imported}
        self.known = roots <= _KNOWN | mine | sys.stdlib_module_names
        self.pure: dict[str, bool] = {}  # of functions that were looked through, by name
        self.modules_keep = False
        self.modules_keep = "forward" in self.functions and not self._are_pure("forward")
        self.pure.clear()  # those were looked through as if modules kept nothing

    def is_apart(self, loop: ast.For) -> bool:
        """Whether no turn of it needs what an earlier one made."""
        if not self.known or loop.orelse or any(isinstance(one, _ENDS) for one in own(loop)):
            return False
        turn = _Turn(loop)
        return turn.carries_nothing() and all(self._is_pure(call, turn.own) for call in turn.calls)

    def _is_pure(self, call: ast.Call, made: set[str]) -> bool:
        """Whether a call leaves nothing behind that the next one reads. made: names of what was made just here."""
        called = call.func
        if not isinstance(called, (ast.Name, ast.Attribute)):
            return False
        name = called.id if isinstance(called, ast.Name) else called.attr
        root = name if isinstance(called, ast.Name) else _root(called.value)
        if name in self.functions and name not in _ALWAYS_CHANGES:
            return self._are_pure(name)
        if isinstance(called, ast.Attribute) and _changes(name):
            return root in made and name not in _ALWAYS_CHANGES
        built = name in self.classes or name in dir(builtins)
        # What is left is a method of something, or a module: the script's own keep nothing, or each call may.
        return built or root in made or self._is_imported(root) or not self.modules_keep

    def _are_pure(self, name: str) -> bool:
        """Whether functions of that name store nothing outside of themselves, nor do those that they call."""
        if name not in self.pure:
            self.pure[name] = False  # what calls itself is not looked into
            self.pure[name] = all(map(self._stores_nothing, self.functions[name]))
        return self.pure[name]

    def _stores_nothing(self, function: ast.FunctionDef) -> bool:
        nodes = list(ast.walk(function))
        if _keeps(function) or any(isinstance(node, (ast.Global, ast.Nonlocal)) for node in nodes):
            return False
        made = _made_here(nodes)
        return all(self._is_pure(node, made) for node in nodes if isinstance(node, ast.Call))

    def _is_imported(self, name: str) -> bool:
        return any(name == local for _, local in self.imported)


class _Turn:
    """One turn of a loop: names in the order in which they are assigned and read."""

    def __init__(self, loop: ast.For) -> None:
        self.loop = loop
        self.calls = [node for one in loop.body for node in ast.walk(one) if isinstance(node, ast.Call)]
        names = (node for node in own(loop) if isinstance(node, ast.Name))
        self.made = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        self.filled: set[str] = set()  # lists, tables and sums
        # What an inner loop goes through may be the same in each turn: weights, for one.
        inner = (set(_stores(one.target)) for one in own(loop) if isinstance(one, ast.For) and one is not loop)
        self.borrowed = set[str]().union(*inner)
        # What is this turn's alone may be changed in place: a name for something from before the loop is no such thing.
        self.own = (_made_here(own(loop)) | set(_stores(loop.target))) - self.borrowed
        self.read: set[str] = set()

    def carries_nothing(self) -> bool:
        """Whether each name is assigned in a turn before it is read there, and what is filled is not read."""
        known = set(_stores(self.loop.target))
        return self._runs(self.loop.body, known) is not None and not self.filled & self.read

    def _runs(self, body: list[ast.stmt], known: set[str]) -> set[str] | None:
        """What is assigned for certain behind these statements; None where they read what is not."""
        for one in body:
            after = self._after(one, known)
            if after is None:
                return None
            known = after
        return known

    def _after(self, one: ast.stmt, known: set[str]) -> set[str] | None:
        if isinstance(one, (ast.Pass, ast.Continue, *INSIDE)):
            return known
        ways: dict[type, Callable[[Any, set[str]], set[str] | None]] = {
            ast.Expr: self._behind_call,
            ast.AugAssign: self._added,
            ast.Assign: self._assigned,
            ast.AnnAssign: self._assigned,
            ast.If: self._chosen,
            ast.For: self._looped,
            ast.With: self._opened,
        }
        return ways[type(one)](one, known) if type(one) in ways else None

    def _behind_call(self, one: ast.Expr, known: set[str]) -> set[str] | None:
        """Behind `found.append(x)`, which fills a list, and `x.add_(1)` of what is this turn's own."""
        call = one.value
        if isinstance(call, ast.Constant):
            return known
        called = call.func if isinstance(call, ast.Call) else None
        if not (
            isinstance(call, ast.Call) and isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name)
        ):
            return None
        name, collects = called.value.id, called.attr in _COLLECTS
        changes = name in known & self.own and called.attr.endswith("_")
        if not (collects or changes) or not all(self._reads(given, known) for given in call.args):
            return None
        if collects:
            self.calls.remove(call)
            self.filled |= {name} - known
        return known

    def _added(self, one: ast.AugAssign, known: set[str]) -> set[str] | None:
        """Behind `total += x`."""
        name = one.target.id if isinstance(one.target, ast.Name) else ""
        if not name or name in self.borrowed or not self._reads(one.value, known):
            return None
        if name not in self.own if name in known else not isinstance(one.op, (ast.Add, ast.Sub)):
            return None
        self.filled |= {name} - known
        return known

    def _assigned(self, one: ast.Assign | ast.AnnAssign, known: set[str]) -> set[str] | None:
        targets = one.targets if isinstance(one, ast.Assign) else [one.target]
        if one.value is not None and not self._reads(one.value, known):
            return None
        for target in targets:
            entry = target if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) else None
            table = entry.value.id if entry is not None and isinstance(entry.value, ast.Name) else ""
            if entry is None and any(isinstance(node, (ast.Attribute, ast.Subscript)) for node in ast.walk(target)):
                return None
            others = (self.borrowed | known) - self.own
            if entry is not None and (table in others or not self._reads(entry.slice, known)):
                return None
            self.filled |= {table} - known - {""}
            known = known | (set() if table else set(_stores(target)))
        return known

    def _chosen(self, one: ast.If, known: set[str]) -> set[str] | None:
        ways = [self._runs(way, set(known)) for way in (one.body, one.orelse)]
        ran = [way for way in ways if way is not None]
        fits = self._reads(one.test, known) and len(ran) == len(ways)
        return known.union(set.intersection(*ran)) if fits else None

    def _looped(self, one: ast.For, known: set[str]) -> set[str] | None:
        inner = known | set(_stores(one.target))
        fits = self._reads(one.iter, known) and self._runs(one.body, inner) is not None and not one.orelse
        return known if fits else None

    def _opened(self, one: ast.With, known: set[str]) -> set[str] | None:
        given = all(self._reads(item.context_expr, known) for item in one.items)
        return self._runs(one.body, known) if given else None

    def _reads(self, node: ast.AST, known: set[str]) -> bool:
        """Whether all that is read here was there before the loop, or was assigned in this turn."""
        names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
        here = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        self.read |= names
        return not (names & self.made) - known - here


def _made_here(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that are given nothing but what is made as they are: numbers, lists, results of arithmetic, copies."""
    fresh: dict[str, bool] = {}
    for node in nodes:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for name in _stores(target) if not isinstance(target, (ast.Subscript, ast.Attribute)) else ():
                    fresh[name] = fresh.get(name, True) and _is_made(node.value)
    return {name for name, made in fresh.items() if made}


def _is_made(value: ast.expr) -> bool:
    called = value.func if isinstance(value, ast.Call) else None
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    return isinstance(value, _MADE) or name in _MAKES


def _keeps(function: ast.FunctionDef) -> bool:
    """Whether a function stores something in an object, in a name of its own aside: `self.state = …`."""
    if function.name == "__init__":
        return False
    stores = (node for node in ast.walk(function) if isinstance(node, (ast.Attribute, ast.Subscript)))
    return any(isinstance(node.ctx, ast.Store) and isinstance(_base(node), ast.Attribute) for node in stores)


def _base(node: ast.Attribute | ast.Subscript) -> ast.expr:
    """`self.state` of `self.state` and of `self.state[i]`."""
    return node if isinstance(node, ast.Attribute) else node.value


def _changes(name: str) -> bool:
    """Whether a method of that name changes its object: `pop`, `add_`."""
    return name in _CHANGES or name in _ALWAYS_CHANGES or (name.endswith("_") and not name.endswith("__"))


def _stores(target: ast.AST) -> Iterator[str]:
    yield from (one.id for one in ast.walk(target) if isinstance(one, ast.Name))


def _root(node: ast.expr) -> str:
    """`state` of `state.square().sum`; empty of what no name begins."""
    while isinstance(node, (ast.Attribute, ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _imported(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """(package, name in the script) of what it imports."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((one.name.partition(".")[0], (one.asname or one.name).partition(".")[0]) for one in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((str(node.module).partition(".")[0], one.asname or one.name) for one in node.names)
