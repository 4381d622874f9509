"""What only the text of the script's files tells: a single call, a switch that is an attribute, where a number is from.

Nothing is guessed: a place is named where one is found, and none where there are several.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any

from ..guards.user_code import file_at

Place = dict[str, Any]  # file, line, function: the keys of `record.CodePlace`
Node = ast.expr | ast.keyword | ast.arg | ast.stmt

# Files of the script that are looked through, and the longest of them.
_MOST_FILES, _MOST_BYTES = 50, 1 << 20
_CUDNN = ("benchmark", "deterministic")
_CHECKPOINTS = ("checkpoint", "checkpoint_sequential", "checkpoint_wrapper", "gradient_checkpointing_enable")
_SETS_VARIABLE = ("setdefault", "putenv")
# How often a number may pass from one name to another: `args.batch_size` to `bs` to `batch_size`.
_MOST_NAMES = 3


class ScriptText:
    """The text of the script's files that are imported, read once.

    foreign   folders of code that is not the user's
    """

    def __init__(self, foreign: tuple[str, ...]) -> None:
        self.foreign = foreign
        self.trees: dict[str, ast.Module | None] = {}

    @cached_property
    def sources(self) -> dict[str, str]:
        """The text of each file, as run.json names it; read while the script runs, since its modules go at its end."""
        paths = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        python = {path for path in paths if isinstance(path, str) and path.endswith(".py")}
        files = {(file, path) for path in python if (file := file_at(path, self.foreign))}
        return {file: text for file, path in sorted(files)[:_MOST_FILES] if (text := _text(path))}

    def nodes(self, *words: str) -> Iterator[tuple[str, ast.AST]]:
        """(file, node) of every file in which one of these words occurs."""
        for file, text in self.sources.items():
            if not any(word in text for word in words):
                continue
            if file not in self.trees:
                self.trees[file] = _parsed(text)
            tree = self.trees[file]
            yield from ((file, node) for node in (ast.walk(tree) if tree else ()))

    def only_call(self, name: str) -> Place:
        """The only call of this name; empty where there is none, or more than one."""
        return self._only(lambda node: isinstance(node, ast.Call) and _last_name(node.func) == name, name)

    def settings(self) -> dict[str, Place]:
        """Lines of threads, float64, checkpointing, cudnn's switches and environment variables, by their names."""
        found = {
            "threads": self.only_call("set_num_threads"),
            "double": self._double(),
            "checkpointing": self._only(_turns_on_checkpointing, "checkpoint")
            or self._only(_checkpoints, "checkpoint"),
        }
        for switch in _CUDNN:
            found[f"cudnn_{switch}"] = self._only(partial(_sets_cudnn, switch), "cudnn")
        for variable in {name for _, node in self.nodes("environ", "putenv") for name in _variables(node)}:
            if variable in os.environ:
                found[variable] = self._only(partial(_sets_variable, variable), variable)
        return {name: place for name, place in found.items() if place}

    def number(self, value: int, argument: str, call: Place) -> Place:
        """Where the number that a call is given for an argument stands as a number in the text; empty where unknown.

        call: the line in the call.  It may be the call itself, or what the name that is passed there was given: in an
        assignment, as the default of an argument or of a command-line option, by keyword, in a dictionary.
        """
        if not call:
            return {}
        passed = self._passed(argument, call)
        if passed is None or _is(passed, value):
            return _place(call["file"], passed) if passed is not None else {}
        names = self._names({_last_name(passed)} - {""})
        found = {
            (file, at.lineno)
            for file, node in (self.nodes(*names, *(name.replace("_", "-") for name in names)) if names else ())
            for name, given, at in _given(node)
            if name in names and _is(given, value)
        }
        file, line = found.pop() if len(found) == 1 else ("", 0)
        return {"file": file, "line": line, "function": ""} if file else {}

    def _passed(self, argument: str, call: Place) -> ast.expr | None:
        """What the innermost call around a line is given for an argument by keyword, or second by position."""
        calls = [
            node
            for file, node in self.nodes(argument, "DataLoader")
            if file == call["file"] and isinstance(node, ast.Call) and _covers(node, call["line"])
        ]
        for node in sorted(calls, key=lambda one: (one.end_lineno or one.lineno) - one.lineno):
            named = [keyword.value for keyword in node.keywords if keyword.arg == argument]
            if named or "DataLoader" in _last_name(node.func):
                return next(iter(named or node.args[1:2]), None)
        return None

    def _names(self, names: set[str]) -> set[str]:
        """These names, and those whose value is assigned to one of them."""
        for _ in range(_MOST_NAMES):
            given = [one for _, node in self.nodes(*names) for one in _given(node)]
            names = names | ({_last_name(value) for name, value, _ in given if name in names} - {""})
        return names

    def _double(self) -> Place:
        """The only `.double()`, or where there is none the only mention of float64."""
        calls = self._all(lambda node: isinstance(node, ast.Call) and _last_name(node.func) == "double", "double")
        mentions = self._all(_mentions_double, "float64", "double")
        found = calls or mentions
        return found[0] if len(found) == 1 else {}

    def _only(self, wanted: Callable[[Any], bool], *words: str) -> Place:
        found = self._all(wanted, *words)
        return found[0] if len(found) == 1 else {}

    def _all(self, wanted: Callable[[Any], bool], *words: str) -> list[Place]:
        lines = {(file, node.lineno) for file, node in self.nodes(*words) if wanted(node)}  # type: ignore[attr-defined]
        return [{"file": file, "line": line, "function": ""} for file, line in sorted(lines)]


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as text:
            return text.read(_MOST_BYTES)
    except (OSError, ValueError):
        return ""


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _place(file: str, node: ast.expr) -> Place:
    return {"file": file, "line": node.lineno, "function": ""}


def _last_name(node: ast.AST) -> str:
    """`batch_size` of `batch_size`, `args.batch_size` and `config["batch_size"]`."""
    if isinstance(node, ast.Subscript):
        return str(node.slice.value) if isinstance(node.slice, ast.Constant) else ""
    return getattr(node, "attr", getattr(node, "id", ""))


def _is(node: ast.AST | None, value: int) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value == value


def _covers(node: ast.Call, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _sets_cudnn(switch: str, node: ast.AST) -> bool:
    """Whether it is `torch.backends.cudnn.<switch> = …`."""
    return isinstance(node, ast.Assign) and any(
        isinstance(target, ast.Attribute) and target.attr == switch and _last_name(target.value) == "cudnn"
        for target in node.targets
    )


def _variables(node: ast.AST) -> list[str]:
    """The variables of the environment that a statement or a call sets."""
    if isinstance(node, ast.Assign):
        kept = [one for one in node.targets if isinstance(one, ast.Subscript) and _last_name(one.value) == "environ"]
        return [_last_name(one) for one in kept]
    if isinstance(node, ast.Call) and _last_name(node.func) in _SETS_VARIABLE and node.args:
        first = node.args[0]
        return [first.value] if isinstance(first, ast.Constant) and isinstance(first.value, str) else []
    return []


def _sets_variable(name: str, node: ast.AST) -> bool:
    return name in _variables(node)


def _turns_on_checkpointing(node: ast.AST) -> bool:
    """Whether it gives a name such as `use_checkpoint` or `gradient_checkpointing` the value True."""
    on = (name for name, given, _ in _given(node) if isinstance(given, ast.Constant) and given.value is True)
    return any("checkpoint" in name for name in on)


def _checkpoints(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _last_name(node.func) in _CHECKPOINTS


def _mentions_double(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in ("float64", "double")
    return isinstance(node, ast.Constant) and node.value == "float64"


def _given(node: ast.AST) -> Iterator[tuple[str, ast.expr, Node]]:
    """(name, what it is given, where) of assignments, arguments with a default, keywords, options, dictionaries."""
    if isinstance(node, ast.Assign):
        yield from ((_last_name(target), node.value, node) for target in node.targets)
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        yield _last_name(node.target), node.value, node
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


def _of_call(call: ast.Call) -> Iterator[tuple[str, ast.expr, Node]]:
    """Its keywords; of `add_argument("--batch-size", default=4)` the default, by the name of the option."""
    options = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    for keyword in call.keywords:
        if keyword.arg == "default":
            yield from ((one.lstrip("-").replace("-", "_"), keyword.value, keyword.value) for one in options)
        elif keyword.arg:
            yield keyword.arg, keyword.value, keyword.value
