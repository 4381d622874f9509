"""The page of advisor.api: every name that rules and reporters may import, with what its docstring says."""

from __future__ import annotations

import ast
import importlib.util
import pkgutil
import re
from collections.abc import Container, Iterator
from functools import cache
from pathlib import Path

from advisor import api

# The folder or module of `advisor` that a name comes from -> the heading it stands below, in the order of the page.
GROUPS = {
    "engine": "Rules",
    "model": "Findings and reports",
    "report": "Findings and reports",
    "analyses": "Analyses",
    "computed": "Analyses",
    "replay": "Replay",
    "ranks": "Several ranks",
    "trace": "Traces",
    "capture": "What a run recorded",
    "calibration": "Machines",
    "hardware": "Machines",
    "constants": "Machines",
    "quantities": "Numbers as text",
    "drawing": "Drawn traces",
    "gate": "The gate",
}
OTHER = "More"
DEFINITION = ast.ClassDef | ast.FunctionDef


def page() -> str:
    """The whole page."""
    groups: dict[str, list[str]] = {title: [] for title in (*GROUPS.values(), OTHER)}
    homes = {name: home for name, home in _homes().items() if home[0].startswith("advisor.")}
    for name in sorted(homes.keys() & set(api.__all__), key=str.lower):
        groups[GROUPS.get(homes[name][0].split(".")[1], OTHER)].append(_entry(name, *homes[name]))
    parts = [
        "# API",
        "Everything that rules, reporters and notebooks may import. `advisor.api` grows, and takes nothing away: what "
        "other modules hold is internal.",
        "A rule asks for analyses by the types of its parameters ([contributing](contributing.md)).",
        "## Notebooks",
        _entry("load", "advisor.trace.read.load"),
        _entry("profile", "advisor.library.profile"),
        "## Tests of rules",
        *(_entry(node.name, "advisor.testing") for node in _module("advisor.testing") if _public(node)),
    ]
    for title, entries in groups.items():
        parts += [f"## {title}", *entries] if entries else []
    return "\n\n".join(parts) + "\n"


def _homes() -> dict[str, tuple[str, str]]:
    """name -> the module that holds what advisor.api imports, and its name there."""
    parts = [f"advisor.api.{part.name}" for part in pkgutil.iter_modules(api.__path__)]
    return {name: _home(*origin) for part in parts for name, origin in _origins(part).items()}


def _home(module: str, name: str) -> tuple[str, str]:
    """Where a name that a module may itself import comes from: packages hand on what their files hold."""
    origin = _origins(module).get(name) if module.startswith("advisor.") else None
    return _home(*origin) if origin else (module, name)


@cache
def _origins(module: str) -> dict[str, tuple[str, str]]:
    """name -> (module, name there) of what a module imports from others."""
    return {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in ast.parse(_source(module)).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@cache
def _module(name: str) -> list[DEFINITION]:
    """The classes and functions of a module."""
    return [node for node in ast.parse(_source(name)).body if isinstance(node, DEFINITION)]


@cache
def _source(name: str) -> str:
    found = importlib.util.find_spec(name)
    if not found or not found.origin:
        raise ModuleNotFoundError(name)
    return Path(found.origin).read_text("utf-8")


def _public(node: ast.stmt) -> bool:
    return isinstance(node, DEFINITION) and not node.name.startswith("_")


def _entry(name: str, home: str, there: str = "") -> str:
    """A name's heading, how it is written, and what it says of itself; `there`: its name in its module."""
    node = next((node for node in _module(home) if node.name == (there or name)), None)
    parts = [f"### {name}"]
    if isinstance(node, ast.FunctionDef):
        parts += [_code(_signature(node, name)), _text(ast.get_docstring(node), {arg.arg for arg in _arguments(node)})]
    elif node:
        parts += [_text(ast.get_docstring(node), set(_names(node))), _fields(node), *_methods(node)]
    else:
        parts += _value(there or name, home)
    return "\n\n".join(part for part in parts if part)


def _value(name: str, home: str) -> Iterator[str]:
    """A constant as it is assigned, or the functions of a module."""
    if importlib.util.find_spec(home).submodule_search_locations and importlib.util.find_spec(f"{home}.{name}"):
        module = f"{home}.{name}"
        yield _text(ast.get_docstring(ast.parse(_source(module))))
        for node in _module(module):
            if _public(node):
                yield _code(_signature(node, node.name) if isinstance(node, ast.FunctionDef) else f"class {node.name}")
                yield _text(ast.get_docstring(node))
        return
    for node in ast.parse(_source(home)).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            yield _code(ast.unparse(node))


def _names(node: ast.ClassDef) -> Iterator[str]:
    """The fields and methods of a class."""
    for one in node.body:
        if isinstance(one, ast.AnnAssign):
            yield ast.unparse(one.target)
        elif isinstance(one, ast.FunctionDef):
            yield one.name


def _fields(node: ast.ClassDef) -> str:
    """The fields of a dataclass or a struct, with their types."""
    lines = [
        ast.unparse(one)
        for one in node.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and not one.target.id.startswith("_")
    ]
    return _code("\n".join(lines)) if lines else ""


def _methods(node: ast.ClassDef) -> Iterator[str]:
    """Public methods and properties with what they say; `compute` is the engine's to call."""
    rows = []
    for one in node.body:
        if isinstance(one, ast.FunctionDef) and not one.name.startswith("_") and one.name != "compute":
            held = {ast.unparse(decorator) for decorator in one.decorator_list}
            shown = one.name if held & {"property", "cached_property", "functools.cached_property"} else _call(one)
            said = " ".join((ast.get_docstring(one) or "").split())
            rows.append(f"- `{shown}`: {said}" if said else f"- `{shown}`")
    if rows:
        yield "\n".join(rows)


def _call(node: ast.FunctionDef) -> str:
    names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args) if arg.arg not in {"self", "cls"}]
    return f"{node.name}({', '.join(names)})"


def _arguments(node: ast.FunctionDef) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def _signature(node: ast.FunctionDef, name: str) -> str:
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"{name}({ast.unparse(node.args)}){returns}"
    if len(line) <= 100:
        return line
    arguments = re.sub(r", (?=\*?\w+(?:: |,))", ",\n    ", ast.unparse(node.args))
    return f"{name}(\n    {arguments},\n){returns}"


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def _text(docstring: str | None, names: Container[str] = ()) -> str:
    """A docstring as Markdown: what it says of each of `names` becomes an item of a list."""
    lines: list[str] = []
    for line in (docstring or "").split("\n"):
        found = re.match(r"(\w+)((?:, \w+)*(?: \([^)]*\))?)(?: {2,}|: | = )(\S.*)", line)
        if found and found[1] in names:
            lines += ["", f"- `{found[1]}{found[2]}`: {found[3]}"]
        else:
            lines.append(line.strip() if lines and line.startswith("  ") else line)
    return "\n".join(lines)
