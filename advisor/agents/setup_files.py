"""What `advisor setup` writes for a coding agent: the skill, and one entry in the configuration of its MCP servers."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from advisor.errors import UsageError

NAME = "torch-advisor"


@dataclass(frozen=True, slots=True)
class Planned:
    """A file as it would be written.

    state  new | same | changed: another text is there, and `note` says what becomes of it
    shown  the lines that are ours in it
    """

    path: Path
    text: str
    state: str
    shown: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Agent:
    skill: str
    config: str
    merged: Callable[[Path, str, str], Planned]
    key: str = "mcpServers"


def plan(agent: str, root: Path, python: str) -> tuple[Planned, ...]:
    """The files of an agent for the project at `root`; the server is started with the interpreter `python`.

    Raises UsageError for a configuration that cannot be read or merged.
    """
    where = AGENTS[agent]
    return _skill(root / where.skill / NAME / "SKILL.md"), where.merged(root / where.config, where.key, python)


def skill() -> str:
    """The skill's text."""
    return (files("advisor.agents") / "SKILL.md").read_text("utf-8")


def _skill(path: Path) -> Planned:
    old, text = _read(path), skill()
    note = f"another {path.name} is there, and is kept as {path.name}.1 or the next free number"
    return Planned(path, text, _state(old, text), f"{len(text.splitlines())} lines: advisor's skill", note)


def _entry(python: str) -> dict[str, Any]:
    return {"command": python, "args": ["-P", "-m", "advisor", "mcp"]}


def _json(path: Path, key: str, python: str) -> Planned:
    """The configuration with our entry in it; all others stay."""
    old = _read(path)
    entry = _entry(python) if key == "mcpServers" else {"type": "stdio", **_entry(python)}
    try:
        document = json.loads(old) if old and old.strip() else {}
    except ValueError as failure:
        raise UsageError(f"{path}: not plain JSON ({failure}); repair it, or add the entry by hand") from failure
    if not isinstance(document, dict) or not isinstance(document.get(key, {}), dict):
        raise UsageError(f"{path}: {key} is no object; repair it, or add the entry by hand")
    servers = document.setdefault(key, {})
    held = servers.get(NAME)
    shown = json.dumps({key: {NAME: entry}}, indent=2)
    if held == entry:
        return Planned(path, old or "", "same", shown)
    note = "the other entries stay" if held is None else f"the entry {NAME} differs and is replaced; the others stay"
    servers[NAME] = entry
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    return Planned(path, text, _state(old, text), shown, note)


def _toml(path: Path, key: str, python: str) -> Planned:
    """The configuration with our table at its end. A table of ours that differs is left to the user."""
    old = _read(path)
    try:
        servers = tomllib.loads(old or "").get(key, {})
    except tomllib.TOMLDecodeError as failure:
        raise UsageError(f"{path}: not TOML ({failure}); repair it, or add the table by hand") from failure
    entry = _entry(python)
    # What JSON writes of these strings and lists is TOML, too.
    lines = [f"{name} = {json.dumps(value)}" for name, value in entry.items()]
    shown = "\n".join([f"[{key}.{NAME}]", *lines])
    if not isinstance(servers, dict):
        raise UsageError(f"{path}: {key} is no table; repair it, or add the table by hand")
    if servers.get(NAME) == entry:
        return Planned(path, old or "", "same", shown)
    if NAME in servers:
        raise UsageError(f"{path}: [{key}.{NAME}] is there and differs; remove it, or edit it by hand")
    text = f"{old.rstrip()}\n\n{shown}\n" if old and old.strip() else f"{shown}\n"
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as failure:
        raise UsageError(f"{path}: {key} cannot be added to ({failure}); add the table by hand") from failure
    return Planned(path, text, _state(old, text), shown, "what is there stays; the table is added at the end")


def _read(path: Path) -> str | None:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as failure:
        why = getattr(failure, "strerror", None) or "no UTF-8 text"
        raise UsageError(f"{path}: cannot be read ({why}); repair it first") from failure


def _state(old: str | None, new: str) -> str:
    return "new" if old is None else "same" if old == new else "changed"


AGENTS = {
    "claude": _Agent(".claude/skills", ".mcp.json", _json),
    "codex": _Agent(".agents/skills", ".codex/config.toml", _toml, "mcp_servers"),
    "cursor": _Agent(".cursor/skills", ".cursor/mcp.json", _json),
    "copilot": _Agent(".github/skills", ".vscode/mcp.json", _json, "servers"),
}
