"""Python's syntax trees of files, and their parts by name: what something is called, what names are given."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator

# Of dataclasses, attrs and pydantic.
_FIELDS = ("field", "attrib", "Field")

Node = ast.expr | ast.keyword | ast.arg | ast.stmt


def parsed(text: str) -> ast.Module | None:
    """The tree of a file's text; None where that is not Python's, or was changed while it was read."""
    try:
        return ast.parse(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


class Trees:
    """The trees of files as they were when Python read them, each parsed once."""

    def __init__(self) -> None:
        self.known: dict[str, ast.Module | None] = {}

    def of(self, source: str) -> ast.Module | None:
        """Of one file, by the path in its code; None of what is not Python's, or was changed since."""
        if source not in self.known:
            self.known[source] = parsed("".join(linecache.getlines(source)))
        return self.known[source]


INSIDE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def own(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all below it, without the insides of functions and classes that are defined there."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, INSIDE):
            yield from own(child)


def last_name(node: ast.AST) -> str:
    """`batch_size` of `batch_size`, `args.batch_size` and `config["batch_size"]`."""
    if isinstance(node, ast.Subscript):
        return str(node.slice.value) if isinstance(node.slice, ast.Constant) else ""
    return getattr(node, "attr", getattr(node, "id", ""))


def read_names(node: ast.AST) -> set[str]:
    """The names that a value is read from: `dtype` of `getattr(torch, args.dtype)` and of `TYPES[dtype]`."""
    if isinstance(node, ast.Call):
        return set().union(*map(read_names, node.args)) - {"torch"}
    if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
        return read_names(node.slice)
    if isinstance(node, ast.BoolOp):
        return set().union(*map(read_names, node.values))
    return {last_name(node)} - {""}


def constant(node: ast.AST) -> object:
    """The constant that it is, of types of torch the name: `float64` of `torch.float64`; None of anything else."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
        return node.attr
    return node.value if isinstance(node, ast.Constant) else None


def is_true(node: ast.AST) -> bool:
    """Whether it is the constant True."""
    return isinstance(node, ast.Constant) and node.value is True


def given(node: ast.AST) -> Iterator[tuple[str, ast.expr, Node]]:
    """(name, what it is given, where) of assignments, arguments with a default, keywords, options, dictionaries."""
    if isinstance(node, ast.Assign):
        yield from ((last_name(target), node.value, node) for target in node.targets)
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        default = _default_of_field(node.value)
        yield last_name(node.target), default or node.value, default or node
    elif isinstance(node, ast.arguments):
        last = (*node.posonlyargs, *node.args)[-len(node.defaults) :] if node.defaults else ()
        yield from ((arg.arg, value, value) for arg, value in zip(last, node.defaults, strict=True))
        named = zip(node.kwonlyargs, node.kw_defaults, strict=True)
        yield from ((arg.arg, value, value) for arg, value in named if value is not None)
    elif isinstance(node, ast.Call):
        yield from _of_call(node)
    elif isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        yield from ((str(key.value), value, value) for key, value in pairs if isinstance(key, ast.Constant))


def _default_of_field(value: ast.expr) -> ast.expr | None:
    """X of `field(default=X)`, as a dataclass has it, and of pydantic's `Field(X)`; None of anything else."""
    if not isinstance(value, ast.Call) or last_name(value.func) not in _FIELDS:
        return None
    named = [keyword.value for keyword in value.keywords if keyword.arg == "default"]
    return next(iter(named or (value.args if last_name(value.func) == "Field" else ())), None)


def _of_call(call: ast.Call) -> Iterator[tuple[str, ast.expr, Node]]:
    """Its keywords; of `add_argument("--batch-size", default=4)` the default, by the name of the option."""
    options = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    for keyword in call.keywords:
        if keyword.arg == "default":
            yield from ((one.lstrip("-").replace("-", "_"), keyword.value, keyword.value) for one in options)
        elif keyword.arg:
            yield keyword.arg, keyword.value, keyword.value
