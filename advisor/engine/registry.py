"""Finds rules and reporters by entry point: the same door for ours and for everybody's."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any

from msgspec import Struct

from advisor.engine.rule import BadRuleError, Rule, from_module
from advisor.errors import UsageError
from advisor.model import Report

RULES = "advisor.rules"
REPORTS = "advisor.reports"
# Pages of what is no Report: `render(comparison) -> str`, `render(history) -> str`.
COMPARISONS = "advisor.comparisons"
HISTORIES = "advisor.histories"
SINKS = "advisor.sinks"


class Broken(Struct, frozen=True):
    """A rule or a pack that did not load; reported as an error row, never fatal."""

    rule: str
    reason: str


class Rules(Struct, frozen=True):
    """All rules found, by id, and what was broken."""

    rules: tuple[Rule, ...]
    broken: tuple[Broken, ...]

    def by_id(self) -> dict[str, Rule]:
        """Rule id -> rule."""
        return {rule.id: rule for rule in self.rules}


def load_rules() -> Rules:
    """Every public module of every package behind the entry point group `advisor.rules`, sub-packages included."""
    rules: dict[str, Rule] = {}
    broken: list[Broken] = []
    # Ours first, so that a pack cannot silently replace a built-in rule.
    for entry in sorted(_entries(RULES), key=lambda e: (e.name != "builtin", e.name)):
        for item in _load_pack(entry):
            if isinstance(item, Broken):
                broken.append(item)
            elif item.id in rules:
                reason = f"pack '{entry.name}' has a rule that pack '{rules[item.id].pack}' already has; rename it"
                broken.append(Broken(item.id, reason))
            else:
                rules[item.id] = item
    return Rules(tuple(sorted(rules.values(), key=lambda rule: rule.id)), tuple(broken))


def _load_pack(entry: EntryPoint) -> list[Rule | Broken]:
    """The rules of a pack, and what of it is broken."""
    try:
        package = importlib.import_module(entry.value)
    except Exception as failure:
        return [Broken(entry.name, f"the pack {entry.value} failed to load: {_one_line(failure)}")]
    return list(_load_package(package, entry.name))


def _load_package(package: ModuleType, pack: str, family: str = "") -> Iterator[Rule | Broken]:
    """The rules of a package and of its public sub-packages. A sub-package with a `check` is a rule itself.

    The outermost sub-package is the family; what it is divided in is not.
    """
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        if info.name.startswith("_"):
            continue
        name = f"{package.__name__}.{info.name}"
        if not info.ispkg:
            yield _load_rule(name, pack, family)
            continue
        try:
            inner = importlib.import_module(name)
        except Exception as failure:
            yield Broken(info.name, f"the package {name} failed to load: {_one_line(failure)}")
            continue
        if hasattr(inner, "check"):
            yield _load_rule(name, pack, family)
        else:
            yield from _load_package(inner, pack, family or _family_of(inner))


def _family_of(package: ModuleType) -> str:
    """The first line of its docstring; the name of a package that has none."""
    said = inspect.cleandoc(package.__doc__ or "").partition("\n")[0].rstrip(".")
    return said or package.__name__.rpartition(".")[2].replace("_", " ")


def _load_rule(module: str, pack: str, family: str) -> Rule | Broken:
    rule_id = module.rpartition(".")[2].replace("_", "-")
    try:
        return from_module(importlib.import_module(module), pack, family)
    except BadRuleError as failure:
        return Broken(rule_id, f"{module} is not a rule: {failure}")
    except Exception as failure:
        return Broken(rule_id, f"{module} failed to load: {_one_line(failure)}")


def reporter_names() -> list[str]:
    """The formats that can be asked for."""
    return names_of(REPORTS)


def load_reporter(name: str) -> Callable[[Report], str]:
    """The function `render(report) -> str` of that format. Raises UsageError for an unknown or broken one."""
    found: Callable[[Report], str] = load_named(REPORTS, name, "format")
    return found


def load_named(group: str, name: str, what: str) -> Any:
    """What stands behind the entry point `name` of `group`. Raises UsageError for an unknown or broken one."""
    for entry in _entries(group):
        if entry.name == name:
            try:
                return entry.load()
            except Exception as failure:
                raise UsageError(
                    f"the {what} '{name}' ({entry.value}) failed to load: {_one_line(failure)}"
                ) from failure
    raise UsageError(f"unknown {what} '{name}'; choose one of {', '.join(names_of(group))}")


def names_of(group: str) -> list[str]:
    """The names in an entry point group, sorted."""
    return sorted({entry.name for entry in _entries(group)})


def _entries(group: str) -> tuple[EntryPoint, ...]:
    found = _all_entries(tuple(sys.path)).select(group=group)
    # A distribution seen twice (a checkout on sys.path beside its installed metadata) yields each entry once.
    return tuple({(entry.name, entry.value): entry for entry in found}.values())


# Reading the metadata of every installed distribution takes some ms, and one command asks for four times.
@functools.lru_cache(maxsize=2)
def _all_entries(_path: tuple[str, ...]) -> Any:
    return entry_points()  # of a type of its own in Python 3.11, which selects in the same way


def _one_line(failure: BaseException) -> str:
    return f"{type(failure).__name__}: {failure}".splitlines()[0]
