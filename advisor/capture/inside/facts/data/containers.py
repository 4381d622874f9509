"""Containers that lines of the script search, read by index or cut at the front: of which type they are, and how long.

The script's text tells at which lines there is such an operation and by which name; the names are looked up once, as
the step whose lines are recorded first gets there. None of the script's code runs for it: attributes are read from
where Python keeps them, and lengths are asked of the types that the containers are built on.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict, deque
from collections.abc import Iterator
from statistics import median
from time import perf_counter_ns
from types import FrameType
from typing import Any, NamedTuple

from ...guards.interrupts import let_through
from ..model.made_at import made_at
from ..source.script_text import ScriptText

_OF_PANDAS = ("iloc", "loc")
# Containers that are kept: each takes a line of run.json.
_MOST = 64
# A deque of so many entries is read at some places, to see how long that takes: of a million 0.8 ms in all.
_TIMED, _PLACES, _PASSES = 1000, 8, 3
# Functions that draw entries, methods that search, functions that copy an array to make it longer.
_DRAWS = ("sample", "choice", "choices")
_SEARCHES = ("index", "count", "remove")
_GROWS = ("append", "concatenate", "vstack", "hstack", "stack", "r_")
# An array of so many bytes is in no cache of a core's own; each number of its rows, of so many, is elsewhere in it.
_LARGE_BYTES, _LONG_ROW = 1 << 21, 8
# Rows of it that are read once each, to see how long that takes: some ten microseconds.
_ROWS = 24
# Operation -> the containers on which it takes the longer the longer they are, or far longer than elsewhere.
_KINDS = {
    "index": ("deque",),
    "draw": ("deque",),
    "search": ("deque", "list", "tuple", "ndarray"),
    "front": ("list",),
    "grow": ("ndarray",),
    "row": ("DataFrame", "Series"),
    "rows": ("DataFrame",),
    "filter": ("DataFrame",),
    "weights": ("ndarray", "list"),
    "by_row": ("ndarray",),
}
# Those that a comprehension runs for each of its elements; what it runs through it makes once.
_EACH = ("index", "search", "row", "filter", "weights")
_BUILT_ON: dict[str, Any] = {"deque": deque, "list": list, "tuple": tuple}
Name = tuple[str, ...]  # ("self", "seen", "[user]"): a name, its attributes, and entries by a name
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)


class Use(NamedTuple):
    """An operation on a container.

    often: what tells how often it runs at its line: a number, a name of one, or of what a comprehension runs through;
    nothing if it runs once
    """

    operation: str
    name: Name
    often: Name | int | None = None


class Containers:
    """The operations of the script's text, and what is known of their containers."""

    def __init__(self, text: ScriptText) -> None:
        self.text = text
        self.uses: dict[tuple[str, int], list[Use]] = defaultdict(list)  # file as run.json names it, line
        self.found: list[dict[str, Any]] = []

    def read(self) -> None:
        """Reads the text of the script's files: before the step whose lines are recorded."""
        for file, tree in self.text.trees(""):
            repeated = _repeated(tree)
            for node in ast.walk(tree):
                for use in _uses(node, repeated.get(id(node))):
                    self.uses[file, node.lineno].append(use)  # type: ignore[attr-defined]

    def look(self, file: str, line: int, frame: FrameType) -> None:
        """The line is about to run in this frame, for the first time. Never raises."""
        uses = self.uses.pop((file, line), ())
        try:
            for use in dict.fromkeys(uses) if len(self.found) < _MOST else ():
                value = _value(use.name, frame)
                known = _by_row(value) if use.operation == "by_row" else _known(value)
                if known is not None and known["kind"] in _KINDS[use.operation]:
                    at = {"file": file, "line": line, "function": frame.f_code.co_name, "name": _written(use.name)}
                    often = (_rows if use.operation == "by_row" else _often)(use.often, frame)
                    self.found.append(at | known | {"operation": use.operation, "often": often})
        except Exception as failure:
            let_through(failure)

    def record(self) -> list[dict[str, Any]]:
        """The containers, with the keys of `record.Container`."""
        for one in self.found:
            if "made" not in one:
                line = made_at(_last(one["name"]), one["kind"], self.text.tree(one["file"]))
                one["made"] = {"file": one["file"], "line": line} if line else None
        return self.found


def _repeated(tree: ast.Module) -> dict[int, Name | int]:
    """The nodes that comprehensions repeat, by their ids: what tells how often."""
    around = [node for node in ast.walk(tree) if isinstance(node, _COMPREHENSIONS)]
    return {id(inner): _runs_through(node) for node in around for inner in ast.walk(node)}


def _uses(node: ast.AST, repeated: Name | int | None) -> Iterator[Use]:
    """The operation of a node, if it is one; repeated: what tells how often it runs at each run of its line."""
    found: tuple[str, ast.AST | None, Name | int | None] | None = None
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and not isinstance(node.slice, ast.Slice):
        pandas = isinstance(node.value, ast.Attribute) and node.value.attr in _OF_PANDAS
        found = ("row", node.value.value, None) if pandas else ("index", node.value, None)  # type: ignore[attr-defined]
        if (whole := _filtered(node)) is not None:
            found = "filter", whole, None
        elif not pandas and not repeated and not isinstance(node.slice, ast.Tuple) and (name := _name(node.value)):
            yield Use("by_row", name, _name(node.slice) or 1)
    elif isinstance(node, ast.Delete) and len(node.targets) == 1 and _is_first(node.targets[0]):
        found = ("front", node.targets[0].value, None)  # type: ignore[attr-defined]
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
        found = ("search", node.comparators[0], None)
    elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.Call):
        found = ("grow", node.targets[0], None) if _grows(node.targets[0], node.value) else None
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        found = _of_call(node, node.func)
    name = _name(found[1]) if found else None
    if found and name:
        yield Use(found[0], name, repeated if repeated and found[0] in _EACH else found[2])


def _of_call(call: ast.Call, called: ast.Attribute) -> tuple[str, ast.AST | None, Name | int | None] | None:
    """The operation of a call of a method or of a function of a module."""
    first = call.args[0] if call.args else None
    front = isinstance(first, ast.Constant) and first.value == 0 and type(first.value) is int
    if front and called.attr in ("pop", "insert"):
        return "front", called.value, None
    if called.attr in _SEARCHES and len(call.args) == 1:
        return "search", called.value, None
    if called.attr in ("query", "iterrows"):
        return ("filter", called.value, None) if called.attr == "query" else ("rows", called.value, _name(called.value))
    return _of_draw(call, first) if called.attr in _DRAWS and first is not None else None


def _of_draw(call: ast.Call, first: ast.expr) -> tuple[str, ast.AST | None, Name | int | None]:
    """A draw from a container, or by probabilities that another one holds."""
    weights = next((one.value for one in call.keywords if one.arg == "p"), None)
    if weights is not None:
        return "weights", weights, None
    many = _drawn(call)
    return "draw", first, _number(many[0]) if many else None


def _filtered(node: ast.Subscript) -> ast.expr | None:
    """The table of `table[table.column == key]`, also by `.loc`: all of its rows are compared. None of others."""
    by = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
    of = node.value
    table = of.value if isinstance(of, ast.Attribute) and of.attr == "loc" else of
    name = _name(table)
    compared = (one.left for one in ast.walk(by) if isinstance(one, ast.Compare) and isinstance(one.ops[0], ast.Eq))
    return table if name and any(_column_of(one) == name for one in compared) else None


def _column_of(node: ast.expr) -> Name | None:
    """The table of `table.column` and `table["column"]`."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return _name(node.value)
    return _name(node.value) if isinstance(node, ast.Attribute) else None


def _is_first(node: ast.AST) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == 0


def _grows(target: ast.expr, call: ast.Call) -> bool:
    """Whether it is `x = np.append(x, …)` or `x = np.concatenate([x, …])`."""
    if not (isinstance(call.func, ast.Attribute) and call.func.attr in _GROWS and call.args):
        return False
    first = call.args[0]
    given = first.elts[:1] if isinstance(first, ast.List | ast.Tuple) else [first]
    return any(_name(one) == _name(target) for one in given)


def _name(node: ast.AST | None) -> Name | None:
    """The parts of `self.memory`; None of anything else."""
    if isinstance(node, ast.Name):
        return (node.id,)
    before = _name(node.value) if isinstance(node, ast.Attribute | ast.Subscript) else None
    if before is None:
        return None
    if isinstance(node, ast.Attribute):
        return (*before, node.attr)
    by = node.slice if isinstance(node, ast.Subscript) else None
    return (*before, f"[{by.id}]") if isinstance(by, ast.Name) else None


def _number(node: ast.expr) -> Name | int | None:
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else _name(node)


def _runs_through(node: Any) -> Name | int:
    """What the first loop of a comprehension runs through: a name, or the number in `range(…)`; ("",) if unknown."""
    through = node.generators[0].iter
    called = through.func if isinstance(through, ast.Call) else None
    if isinstance(called, ast.Name) and called.id == "range" and len(through.args) == 1:
        return _number(through.args[0]) or ("",)
    if isinstance(called, ast.Attribute):
        many = _drawn(through) if called.attr in _DRAWS else _sizes(through)
        return (_number(many[0]) if many else None) or ("",)
    return _name(through) or ("",)


def _drawn(call: ast.Call) -> list[ast.expr]:
    """What a call of a function that draws says of how many."""
    return [*call.args[1:2], *_sizes(call)]


def _sizes(call: ast.Call) -> list[ast.expr]:
    return [one.value for one in call.keywords if one.arg in ("k", "size")]


def _last(written: str) -> str:
    """The name that the container is given by: `seen` of `self.seen[user]`."""
    return written.partition("[")[0].rpartition(".")[2]


def _written(name: Name) -> str:
    """As the script writes it: `self.seen[user]`."""
    return ".".join(name).replace(".[", "[")


def _value(name: Name, frame: FrameType) -> Any:
    """What a name stands for in a frame; None where it is not found without running code."""
    local = frame.f_locals
    value = local.get(name[0]) if name[0] in local else frame.f_globals.get(name[0])
    for part in name[1:]:
        value = _entry(value, local.get(part[1:-1])) if part.startswith("[") else _attribute(value, part)
    return value


def _attribute(value: Any, name: str) -> Any:
    """An attribute that an object keeps in its dictionary; None of any other."""
    try:
        return object.__getattribute__(value, "__dict__").get(name)
    except AttributeError:
        return None


def _entry(value: Any, key: Any) -> Any:
    """An entry of a dictionary or a list; None where there is none, or finding it might run code."""
    if type(key) not in (int, str):
        return None
    if isinstance(value, dict):
        return dict.get(value, key)
    small = type(value) is list and type(key) is int and -len(value) <= key < len(value)
    return value[key] if small else None


def _known(value: Any) -> dict[str, Any] | None:
    """kind, length, bytes and the type of the first entry of a container; None of anything else."""
    for kind, base in _BUILT_ON.items():
        if isinstance(value, base):
            length = base.__len__(value)
            first = type(base.__getitem__(value, 0)).__name__ if length else ""
            timed = {"read_us": _read_us(value, length)} if base is deque and length >= _TIMED else {}
            return {"kind": kind, "length": length, "bytes": 0, "entries": first} | timed
    for package, kind in (("numpy", "ndarray"), ("pandas", "DataFrame"), ("pandas", "Series")):
        of_package = getattr(sys.modules.get(package), kind, None)
        if of_package is not None and type(value) is of_package:
            length = int(value.shape[0]) if value.shape else 0
            return {"kind": kind, "length": length, "bytes": int(getattr(value, "nbytes", 0)), "entries": ""}
    return None


def _by_row(value: Any) -> dict[str, Any] | None:
    """As `_known`, of a large table whose columns lie together: numbers of one row are far from each other."""
    known = _known(value)
    if known is None or known["kind"] != "ndarray" or value.ndim != 2 or value.dtype.hasobject:
        return None
    rows, columns = value.shape
    by_column = abs(value.strides[0]) < abs(value.strides[1])
    if not by_column or known["bytes"] < _LARGE_BYTES or columns < _LONG_ROW or rows < _ROWS:
        return None
    step = rows // _ROWS
    apart, together = (median(_copied_us(one) for one in lines) for lines in (value[::step], value.T[:_ROWS, :columns]))
    return known | {"read_us": max(apart - together, 0.0)}


def _copied_us(line: Any) -> float:
    """µs to copy these numbers."""
    began_ns = perf_counter_ns()
    line.copy()
    return (perf_counter_ns() - began_ns) / 1e3


def _read_us(value: Any, length: int) -> float:
    """µs to read an entry by its index, the mean of places that lie evenly spread; the best of some passes."""
    places = [length * (2 * part + 1) // (2 * _PLACES) for part in range(_PLACES)]
    passes = []
    for _ in range(_PASSES):
        began_ns = perf_counter_ns()
        for place in places:
            deque.__getitem__(value, place)
        passes.append((perf_counter_ns() - began_ns) / 1e3 / _PLACES)
    return min(passes)


def _often(often: Name | int | None, frame: FrameType) -> float | None:
    """How often an operation runs at each run of its line; None if unknown."""
    if often is None or isinstance(often, int):
        return 1.0 if often is None else float(often)
    value = _value(often, frame)
    if type(value) is int:
        return float(value)
    known = _known(value)
    return float(known["length"]) if known else None


def _rows(by: Name | int | None, frame: FrameType) -> float | None:
    """How many rows an index takes at each run of its line: one, or those that it lists; None if unknown."""
    if not isinstance(by, tuple):
        return 1.0
    value = _value(by, frame)
    if "bool" in str(getattr(value, "dtype", "")):
        return None  # a mask: how many rows it takes, only a count of it tells
    if type(value) is getattr(sys.modules.get("torch"), "Tensor", None):
        return float(value.shape[0]) if value.dim() else 1.0
    known = _known(value)
    return float(known["length"]) if known else 1.0
