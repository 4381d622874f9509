"""Lets `pytest tests/rules -k input_bound` select what a change of that rule needs."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from advisor.engine.registry import load_rules

# A rule whose file does not load has no tests that could fail.
if BROKEN := load_rules().broken:
    raise pytest.UsageError("; ".join(f"{one.rule}: {one.reason}" for one in BROKEN))

RULES = Path(__file__).parents[2] / "rules"
# Files of these names hold a rule each; the others are their helpers.
FILES = {path.stem: path for path in RULES.rglob("[!_]*.py")}


def family_of(path: Path) -> str:
    """The folder right below `rules/` that a file lies in."""
    return path.relative_to(RULES).parts[0]


@cache
def helpers(path: Path) -> frozenset[str]:
    """The private modules of its own family that a file in rules/ imports, directly and through each other."""
    found: set[Path] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            folder = path.parents[max(node.level, 1) - 1].joinpath(*(node.module or "").split(".")[:-1])
            names = {(node.module or "").rpartition(".")[2], *(alias.name for alias in node.names)}
            found |= {folder / f"{name}.py" for name in names if name.startswith("_")}
    own = {file for file in found if file.is_file() and family_of(file) == family_of(path)}
    return frozenset(file.stem for file in own).union(*map(helpers, own))


@cache
def rules_in(text: str) -> frozenset[str]:
    """The rules that a piece of a test names: by id, by module, or by a helper that only their family imports."""
    words = set(re.findall(r"\w+", text.replace("-", "_")))
    return frozenset(stem for stem, path in FILES.items() if {stem, *helpers(path)} & words)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Gives a test the names of the rules in its text as keywords, for -k; where it has none, those of its file."""
    if not item.config.option.keyword:
        return
    if not isinstance(item, pytest.Function) or "rule" in item.fixturenames:  # those carry it in their own name
        return
    item.extra_keyword_matches.update(rules_of(item.function, item.path))


@cache
def rules_of(function: Callable[..., object], path: Path) -> frozenset[str]:
    """The rules that a test names, once for all of its cases; where it names none, those of its file."""
    return rules_in(inspect.getsource(function)) or rules_in(path.read_text("utf-8"))
