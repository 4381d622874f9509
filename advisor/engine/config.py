"""`[tool.torch-advisor]` of pyproject.toml, checked key by key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advisor.errors import UsageError

TABLE = "torch-advisor"
_KEYS = ("select", "ignore", "rules", "gate")


@dataclass(frozen=True, slots=True)
class Config:
    """What the user chose. Empty `select` means every rule.

    ignore: rule id -> reason (shown in the report; empty where none was given).
    thresholds: rule id -> {keyword of its check: value}.
    gate: the table `[tool.torch-advisor.gate]` as it stands; `advisor.gate` checks it.
    """

    select: tuple[str, ...] = ()
    ignore: Mapping[str, str] = field(default_factory=dict)
    thresholds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    gate: Mapping[str, Any] = field(default_factory=dict)
    path: str = ""


def find(start: Path) -> Config:
    """The configuration of the nearest pyproject.toml at or above `start` that has our table; defaults without one."""
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if path.is_file():
            table = _table(path)
            if table is not None:
                return parse(table, path.name)
    return Config()


def _table(path: Path) -> Mapping[str, Any] | None:
    import tomllib

    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as failure:
        raise UsageError(f"{path.name}: not readable as TOML ({failure}); fix it or run in another folder") from failure
    table = document.get("tool", {}).get(TABLE)
    if table is not None and not isinstance(table, Mapping):
        raise UsageError(f"{path.name}: [tool.{TABLE}] must be a table")
    return table


def parse(table: Mapping[str, Any], path: str) -> Config:
    """The table as a Config. Raises UsageError that names the nearest known key."""
    where = f"{path}: [tool.{TABLE}]"
    for key in table:
        known(key, _KEYS, f"{where} key")
    return Config(
        select=tuple(_texts(table.get("select", ()), f"{where} select")),
        ignore=_ignored(table.get("ignore", ()), f"{where} ignore"),
        thresholds=_thresholds(table.get("rules", {}), f"{where} rules"),
        gate=table.get("gate", {}),
        path=path,
    )


def _texts(value: Any, where: str) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise UsageError(f'{where}: must be a list of rule ids, such as ["small-batch"]')
    return list(value)


def _ignored(value: Any, where: str) -> dict[str, str]:
    if isinstance(value, Mapping) and all(isinstance(reason, str) for reason in value.values()):
        return dict(value)
    return dict.fromkeys(_texts(value, where), "")


def _thresholds(value: Any, where: str) -> dict[str, Mapping[str, Any]]:
    if not isinstance(value, Mapping) or not all(isinstance(entry, Mapping) for entry in value.values()):
        raise UsageError(f"{where}: must hold one table per rule, such as [tool.{TABLE}.rules.small-batch]")
    return dict(value)


def known(name: str, names: Iterable[str], what: str) -> None:
    """Raises UsageError for a name that is not among `names`, with the nearest one that is."""
    choices = sorted(names)
    if name in choices:
        return
    import difflib

    near = difflib.get_close_matches(name, choices, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"choose one of {', '.join(choices)}"
    raise UsageError(f"unknown {what} '{name}'; {hint}")
