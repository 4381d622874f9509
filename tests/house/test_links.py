"""Links of every page lead to a file and, where they name one, to a heading of it, as GitHub spells its anchor."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", ".github/CONTRIBUTING.md", ".github/SECURITY.md"]
PAGES += sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))


def prose(text: str) -> str:
    """The text without code."""
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "``", text)


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings: lower case, hyphens for spaces, a number where one comes again."""
    found: Counter[str] = Counter()
    made = set()
    for heading in re.findall(r"^#+ +(.+?) *$", re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        made.add(f"{slug}-{found[slug]}" if found[slug] else slug)
        found[slug] += 1
    return made


def broken(page: Path) -> Iterator[str]:
    """Links of a page that lead nowhere."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text("utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and anchor not in anchors(file.read_text("utf-8"))):
            yield target


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_a_file_and_a_heading(name: str) -> None:
    assert list(broken(ROOT / name)) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# What is `tried`: a, b\n\n## Twice\n\n## Twice\n\n[a](#what-is-tried-a-b) [b](page.md#twice-1) [c](https://x.y)\n"
        "[d](gone.md) [e](#thrice) [f](page.md#twice-2)\n\n```\n[g](code.md)\n```\n"
    )
    assert list(broken(page)) == ["gone.md", "#thrice", "page.md#twice-2"]


def test_links_lead_to_files_that_git_has() -> None:
    """What lies in a checkout by accident is in no other."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("no checkout of git")
    known = set(listed.stdout.splitlines())
    for name in PAGES:
        page = ROOT / name
        for target in re.findall(r"\]\(([^)#:\s]+)", prose(page.read_text("utf-8"))):
            file = (page.parent / target).resolve()
            assert not file.is_file() or file.relative_to(ROOT).as_posix() in known, f"{name}: {target}"
