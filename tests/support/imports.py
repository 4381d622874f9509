"""Who imports whom, read from the source: modules by their installed names, and the rooms that they lie in."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOPS = ("advisor", "rules", "reports")


def name_of(path: Path) -> str:
    """The dotted name under which a file is installed."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "advisor" else ("advisor", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def modules() -> Mapping[str, Path]:
    """Dotted name -> file, of everything that a wheel holds. `boot` is no package: its folder stands on PYTHONPATH."""
    paths = (path for top in TOPS for path in sorted((ROOT / top).rglob("*.py")) if path.parent.name != "boot")
    return {name_of(path): path for path in paths}


def _unchecked(tree: ast.Module) -> Iterator[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING`: what is imported for types alone is imported never."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            waiting += node.orelse
        else:
            waiting += ast.iter_child_nodes(node)


@functools.cache
def imported(path: Path) -> frozenset[str]:
    """Every dotted name that a file imports, wherever in it: `from a import b` gives a.b."""
    home = name_of(path).split(".")
    if path.name != "__init__.py":
        home = home[:-1]
    names: set[str] = set()
    for node in _unchecked(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = home[: len(home) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return frozenset(names)


@functools.cache
def imports_of(name: str) -> frozenset[str]:
    """The modules of ours that one of them imports."""
    found = set()
    for one in imported(modules()[name]):
        found |= {one} if one in modules() else {one.rpartition(".")[0]}
    return frozenset(found & set(modules()) - {name})


def room_of(name: str) -> str:
    """The folder of a module below advisor/: `analyses.step`, `capture.inside`; a file at the top is its own room.

    What lies below capture.inside is one room: it is loaded as one package into the user's process.
    """
    path = modules()[name].relative_to(ROOT)
    if path.parts[0] in ("rules", "reports"):
        return path.parts[0]
    folder = path.parent.relative_to("advisor").parts
    if not folder:
        return path.stem
    return ".".join(folder[:2] if folder[:2] == ("capture", "inside") else folder)
