"""docs/architecture.md leads to what is there: every path exists, every room and every family of rules is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
PATHS = sorted(set(re.findall(r"(?<![\w/.])(?:advisor|rules|reports|tests|docs|samples)/[\w/.-]*\w/?", PAGE)))


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_is_named_exists(path: str) -> None:
    assert (ROOT / path).exists()
    assert (ROOT / path).is_dir() == path.endswith("/") or path == "tests/rules"


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", PAGE)
    assert targets
    assert [target for target in targets if not (ROOT / "docs" / target).exists()] == []


def folders(top: str) -> set[str]:
    """The packages right below a folder."""
    return {f"{init.parent.relative_to(ROOT).as_posix()}/" for init in (ROOT / top).glob("*/__init__.py")}


def test_every_room_has_its_row() -> None:
    """Where a room is divided by processes, its parts have theirs."""
    rows = set(re.findall(r"^\| `([\w/]+)` \|", PAGE, re.MULTILINE))
    capture = folders("advisor/capture")
    assert rows == (folders("advisor") - {"advisor/capture/"}) | capture | {"rules/", "reports/"}


def test_every_family_of_rules_is_named() -> None:
    assert folders("rules") <= set(PATHS)
