"""A treatment as an edit of the script: the arguments of one call, or a call that goes. All other characters stay.

`ast` knows where every call and argument stands, to the column; what lies between them is never written again. So the
user's formatting and comments stay, without a library that parses and prints whole files.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from advisor.model import Treatment

_OPTIMIZERS = ("SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "RMSprop", "NAdam", "RAdam", "ASGD", "Adamax")


class NoEditError(Exception):
    """Why a treatment cannot be written into this file."""


@dataclass(frozen=True, slots=True)
class _Text:
    """A file with the offsets of its lines; columns of `ast` count UTF-8 bytes."""

    data: bytes
    starts: tuple[int, ...]

    def at(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)


Change = tuple[int, int, bytes]  # from, to, what stands there instead


def edit(source: str, lines: Collection[int], treatment: Treatment) -> str:
    """The source with the treatment written into the call at one of these lines, or into the only such call.

    Raises NoEditError where there is no such call, or several of which none stands at these lines.
    """
    data = source.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    text = _Text(data, tuple(starts))
    try:
        tree = ast.parse(source)
    except SyntaxError as failure:
        raise NoEditError(f"cannot be parsed ({failure.msg}, line {failure.lineno})") from failure
    make = _EDITS.get(treatment.name)
    if make is None:
        raise NoEditError(f"no edit is known for '{treatment.name}'")
    changed = data
    for start, end, new in sorted(make(text, tree, lines, treatment), reverse=True):
        changed = changed[:start] + new + changed[end:]
    done = changed.decode()
    ast.parse(done)
    return done


def _loader(text: _Text, tree: ast.AST, lines: Collection[int], treatment: Treatment) -> list[Change]:
    call = _call(tree, ("DataLoader",), lines)
    # A loader without workers refuses what only workers need.
    needless = () if treatment.arguments.get("num_workers", 1) else ("persistent_workers", "prefetch_factor")
    return _with_arguments(text, call, treatment, needless)


def _batch(text: _Text, tree: ast.AST, lines: Collection[int], treatment: Treatment) -> list[Change]:
    size = treatment.arguments.get("size")
    if size is None:
        raise NoEditError("the batch size must be a number, not a factor")
    call = _call(tree, ("DataLoader",), lines)
    if len(call.args) > 1:
        return [(*text.span(call.args[1]), str(size).encode())]
    return _with_arguments(text, call, Treatment("batch", {"batch_size": size}), ())


def _optimizer(text: _Text, tree: ast.AST, lines: Collection[int], treatment: Treatment) -> list[Change]:
    other = "foreach" if "fused" in treatment.arguments else "fused"
    return _with_arguments(text, _call(tree, _OPTIMIZERS, lines), treatment, (other,))


def _parallel(text: _Text, tree: ast.AST, lines: Collection[int], treatment: Treatment) -> list[Change]:
    return _with_arguments(text, _call(tree, ("DistributedDataParallel", "DDP"), lines), treatment, ())


def _threads(text: _Text, tree: ast.AST, lines: Collection[int], treatment: Treatment) -> list[Change]:
    if set(treatment.arguments) != {"count"}:
        raise NoEditError("threads of loader workers are set in a worker_init_fn")
    call = _call(tree, ("set_num_threads",), lines)
    if len(call.args) != 1 or call.keywords:
        raise NoEditError("set_num_threads() is called in an unsupported way")
    return [(*text.span(call.args[0]), str(treatment.arguments["count"]).encode())]


def _set_to_none(text: _Text, tree: ast.AST, _lines: Collection[int], _treatment: Treatment) -> list[Change]:
    calls = [call for call in _calls(tree, ("zero_grad",)) if any(k.arg == "set_to_none" for k in call.keywords)]
    changes = [one for call in calls for one in _without(text, call, ("set_to_none",))]
    if not changes:
        raise NoEditError("no call of zero_grad(set_to_none=False)")
    return changes


def _calls_out(text: _Text, tree: ast.AST, lines: Collection[int], treatment: Treatment) -> list[Change]:
    """Statements that are nothing but such a call go; `pass` stays where a block would be empty."""
    names = {name.rpartition(".")[2] for name in treatment.arguments["names"]}
    found = [
        (block, statement)
        for block in _blocks(tree)
        for statement in block
        if isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and _named(statement.value) in names
    ]
    near = [one for one in found if one[1].lineno in lines] or found
    if len(near) != 1:
        calls = " or ".join(f"{name}()" for name in sorted(names))
        raise NoEditError(f"{len(near)} lines are nothing but {calls}" if near else f"no line is nothing but {calls}")
    block, statement = near[0]
    start, end = text.span(statement)
    line, after = text.starts[statement.lineno - 1], text.data.find(b"\n", end)
    alone = not text.data[line:start].strip() and not text.data[end : after if after >= 0 else None].strip()
    if len(block) == 1 or not alone:
        return [(start, end, b"pass")]
    return [(line, after + 1 if after >= 0 else len(text.data), b"")]


def _in_float32(text: _Text, tree: ast.AST, _lines: Collection[int], _treatment: Treatment) -> list[Change]:
    """Every `.double()` becomes `.float()`, every `torch.float64` and `torch.double` `torch.float32`."""
    called = [call.func for call in _calls(tree, ("double",)) if not call.args and isinstance(call.func, ast.Attribute)]
    changes = [_renamed(text, one, "float") for one in called]
    changes += [
        _renamed(text, node, "float32")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in ("float64", "double")
        and isinstance(node.value, ast.Name)
        and node.value.id == "torch"
        and node not in called
    ]
    if not changes:
        raise NoEditError("no call of double() and no torch.float64")
    return changes


def _kept_on_device(text: _Text, tree: ast.AST, lines: Collection[int], _treatment: Treatment) -> list[Change]:
    """`total += loss.item()` at one of the lines becomes `total += loss.detach()`."""
    found = [
        node.value.func
        for node in ast.walk(tree)
        if isinstance(node, ast.AugAssign)
        and isinstance(node.op, ast.Add)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr == "item"
        and not node.value.args
        and node.lineno in lines
    ]
    if not found:
        raise NoEditError("no sum of items (`total += loss.item()`) at the lines of the finding")
    return [_renamed(text, one, "detach") for one in found]


def _renamed(text: _Text, node: ast.Attribute, name: str) -> Change:
    _, end = text.span(node)
    return end - len(node.attr.encode()), end, name.encode()


_EDITS: dict[str, Callable[[_Text, ast.AST, Collection[int], Treatment], list[Change]]] = {
    "batch": _batch,
    "calls": _calls_out,
    "ddp": _parallel,
    "in_float32": _in_float32,
    "kept_on_device": _kept_on_device,
    "loader": _loader,
    "optimizer": _optimizer,
    "set_to_none": _set_to_none,
    "threads": _threads,
}

# Treatments that can be written into a script, and changes that are nothing but edits.
NAMES = tuple(_EDITS)


def _calls(tree: ast.AST, names: Collection[str]) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _named(node) in names]


def _named(call: ast.Call) -> str:
    name: str = getattr(call.func, "attr", getattr(call.func, "id", ""))
    return name


def _blocks(tree: ast.AST) -> list[list[ast.stmt]]:
    fields = ("body", "orelse", "finalbody")
    values = (getattr(node, name, None) for node in ast.walk(tree) for name in fields)
    return [value for value in values if isinstance(value, list)]


def _call(tree: ast.AST, names: Sequence[str], lines: Collection[int]) -> ast.Call:
    """The call at one of the lines, else the only one there is."""
    calls = _calls(tree, names)
    near = [call for call in calls if any(call.lineno <= line <= (call.end_lineno or 0) for line in lines)] or calls
    if len(near) != 1:
        raise NoEditError(f"{len(near)} calls of {' or '.join(names)}: it is not known which one")
    if any(keyword.arg is None for keyword in near[0].keywords):
        raise NoEditError(f"{_named(near[0])}() takes its arguments from a dictionary")
    return near[0]


def _with_arguments(text: _Text, call: ast.Call, treatment: Treatment, without: Collection[str]) -> list[Change]:
    """Each argument's value where it is given by name, else behind the last argument."""
    known = {keyword.arg: keyword.value for keyword in call.keywords}
    changes = [(*text.span(known[k]), repr(v).encode()) for k, v in treatment.arguments.items() if k in known]
    gone = [name for name in without if name in known]
    new = [f"{name}={value!r}" for name, value in treatment.arguments.items() if name not in known]
    if new:
        last = _last(text, call)
        changes.append((last, last, (", " if call.args or call.keywords else "").encode() + ", ".join(new).encode()))
    return changes + _without(text, call, gone)


def _last(text: _Text, call: ast.Call) -> int:
    """Where the last argument ends; behind the opening bracket where there is none."""
    ends = [text.span(one)[1] for one in (*call.args, *(keyword.value for keyword in call.keywords))]
    return max(ends) if ends else text.span(call)[1] - 1


def _without(text: _Text, call: ast.Call, names: Collection[str]) -> list[Change]:
    """These keywords go, with the comma and the blanks before them."""
    changes = []
    before = text.span(call.func)[1]
    every = sorted(text.span(one) for one in (*call.args, *(keyword.value for keyword in call.keywords)))
    for keyword in call.keywords:
        if keyword.arg in names:
            start, end = text.at(keyword.lineno, keyword.col_offset), text.span(keyword.value)[1]
            ends = [stop for _, stop in every if stop <= start]
            if ends:
                start = max(ends)
            else:  # the first: the comma after it goes
                rest = text.data[end:]
                end += len(rest) - len(rest.lstrip(b" ,"))
                start = max(start, before)
            changes.append((start, end, b""))
    return changes
