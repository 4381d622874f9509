"""`advisor setup`: shows before it writes, keeps what is there, and refuses what it cannot merge."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from advisor.agents import setup_files
from advisor.cli import main

ENTRY = {"command": sys.executable, "args": ["-P", "-m", "advisor", "mcp"]}


def config(path: Path) -> Any:
    text = path.read_text("utf-8")
    return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)


@pytest.mark.parametrize("agent", sorted(setup_files.AGENTS))
def test_nothing_is_written_without_yes(agent: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["setup", "--agent", agent, "--folder", str(tmp_path)]) == 0
    assert "add --yes" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("agent", sorted(setup_files.AGENTS))
def test_what_is_shown_is_written_once(agent: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["setup", "--agent", agent, "--folder", str(tmp_path), "--yes"]) == 0
    where = setup_files.AGENTS[agent]
    assert (tmp_path / where.skill / "torch-advisor" / "SKILL.md").read_text("utf-8") == setup_files.skill()
    entry = config(tmp_path / where.config)[where.key]["torch-advisor"]
    assert {name: entry[name] for name in ENTRY} == ENTRY
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert main(["setup", "--agent", agent, "--folder", str(tmp_path), "--yes"]) == 0
    assert "nothing to write" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files


def test_other_entries_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = {"mcpServers": {"élan": {"command": "x"}, "torch-advisor": {"command": "old"}}, "inputs": [1]}
    (tmp_path / ".mcp.json").write_text(json.dumps(other), "utf-8")
    assert main(["setup", "--agent", "claude", "--folder", str(tmp_path), "--yes"]) == 0
    assert "torch-advisor differs and is replaced; the others stay" in capsys.readouterr().out
    other["mcpServers"]["torch-advisor"] = ENTRY
    assert config(tmp_path / ".mcp.json") == other


def test_other_tables_and_comments_stay(tmp_path: Path) -> None:
    path = tmp_path / ".codex" / "config.toml"
    path.parent.mkdir()
    path.write_text('model = "m" # mine\n[mcp_servers.other]\ncommand = "x"\n')
    assert main(["setup", "--agent", "codex", "--folder", str(tmp_path), "--yes"]) == 0
    assert path.read_text().startswith('model = "m" # mine\n')
    assert config(path)["mcp_servers"] == {"other": {"command": "x"}, "torch-advisor": ENTRY}


def test_another_skill_of_that_name_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / ".claude" / "skills" / "torch-advisor" / "SKILL.md"
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    assert main(["setup", "--agent", "claude", "--folder", str(tmp_path)]) == 0
    assert "another SKILL.md is there" in capsys.readouterr().out
    assert path.read_text() == "mine"
    assert main(["setup", "--agent", "claude", "--folder", str(tmp_path), "--yes"]) == 0
    assert path.with_name("SKILL.md.1").read_text() == "mine"


@pytest.mark.parametrize(
    ("agent", "text"),
    [
        ("claude", '{"mcpServers": {'),
        ("claude", "[]"),
        ("claude", '{"mcpServers": []}'),
        ("copilot", '{"servers": {}, // mine\n}'),
        ("cursor", "\xff"),
        ("codex", "[mcp_servers"),
        ("codex", "mcp_servers = 1"),
        ("codex", "mcp_servers = {}"),
        ("codex", '[mcp_servers.torch-advisor]\ncommand = "old"'),
    ],
)
def test_a_damaged_configuration_is_refused_in_one_line(
    agent: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / setup_files.AGENTS[agent].config
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("latin-1"))
    assert main(["setup", "--agent", agent, "--folder", str(tmp_path), "--yes"]) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert path.name in said.err
    assert path.read_bytes() == text.encode("latin-1")
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == [path]


def test_the_skill_names_commands_and_tools_that_exist() -> None:
    import re

    from advisor.cli import COMMANDS

    text = setup_files.skill()
    assert text.startswith("---\nname: torch-advisor\n")
    named = set(re.findall(r"`advisor (\w+)", text))
    assert named
    assert named <= set(COMMANDS)
