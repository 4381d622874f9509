"""The table of known troubles names tests that exist, for every trouble."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "capture-troubles.md"


def rows() -> dict[str, str]:
    """id -> what holds it."""
    found = re.findall(r"^\| ([AG]\d+) \| .+? \| (.+) \|$", TABLE.read_text("utf-8"), re.MULTILINE)
    assert len(found) == len({number for number, _ in found})
    return dict(found)


def test_every_trouble_is_answered_once() -> None:
    wanted = {f"A{number}" for number in range(1, 31)} | {f"G{number}" for number in range(1, 12)}
    assert set(rows()) == wanted


def test_the_tests_that_are_named_exist() -> None:
    named = [name for held in rows().values() for name in re.findall(r"`((?:[a-z_]+/)+test_[\w.:]+)`", held)]
    assert len(named) > 60
    for name in named:
        file, _, function = name.partition("::")
        text = (ROOT / "tests" / file).read_text("utf-8")
        assert not function or f"\ndef {function}(" in text, name
