"""Which names of a file are those of torch: what its imports say, and where nothing says it, how it is spelled."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator
from dataclasses import dataclass

_UNKNOWN = "?"  # of a name that is imported from two places, such as a replacement that may not be installed


@dataclass(frozen=True, slots=True)
class Origins:
    """imported: name -> where it comes from, with dots.  own: classes and functions that the file defines."""

    imported: dict[str, str]
    own: frozenset[str]

    def dotted(self, node: ast.expr) -> str:
        """`torch.utils.data.DataLoader` for what a name or a chain of attributes means; empty for anything else."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self.imported.get(node.id, node.id), *reversed(parts)])

    def torchs(self, node: ast.expr, names: Collection[str]) -> bool:
        """Whether this is one of torch's classes or functions of these names.

        A bare name that is neither imported nor defined here comes with a star, and is taken for torch's.
        """
        dotted = self.dotted(node)
        first, _, rest = dotted.partition(".")
        if dotted.rpartition(".")[2] not in names:
            return False
        return first == "torch" if rest else first not in self.own

    def of_packages(self, node: ast.expr, names: Collection[str], packages: Collection[str]) -> bool:
        """Whether this is a class or function of one of these names that is imported from one of these packages."""
        dotted = self.dotted(node)
        return dotted.partition(".")[0] in packages and dotted.rpartition(".")[2] in names

    def set_elsewhere(self, value: ast.expr) -> bool:
        """Whether a value comes from a variable or an option, so that a number in its place would leave that unused."""
        names = (node.id for node in ast.walk(value) if isinstance(node, ast.Name))
        return any(name not in self.imported and not hasattr(builtins, name) for name in names)


def of_tree(tree: ast.AST) -> Origins:
    """The origins of a file's names, whatever scope they are imported in."""
    imported: dict[str, str] = {}
    for name, origin in _imports(tree):
        imported[name] = origin if imported.get(name, origin) == origin else _UNKNOWN
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    own = frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))
    return Origins(imported, own)


def _imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                # `import torch.optim` binds `torch`.
                first = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (first, first)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from ((alias.asname or alias.name, f"{module}.{alias.name}") for alias in node.names)
