"""Where a file lies: a path, an address such as `s3://bucket/run/`, or a member of an archive.

All three answer to the part of `Path` that reading traces needs: `name`, `parent`, `/`, `is_file`, `is_dir`, `stat`,
`open`, `read_bytes`, `glob`. `str()` is for people and holds no credentials; `os.fspath()` is complete, and `place()`
makes the same place of it again, in another process, too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import TypeAlias

from advisor.places.archive import Archive, Member
from advisor.places.remote import Remote

Place: TypeAlias = Path | Remote | Member

# One letter is a drive of Windows.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_MEMBER = re.compile(r"\.(?:zip|tar|tar\.gz|tgz)(!/)")


def place(where: str | PathLike[str]) -> Place:
    """The place that a user's words or `os.fspath` of a place name. Nothing is opened yet."""
    if isinstance(where, Path | Remote | Member):
        return where
    text = os.fspath(where)
    inside = _MEMBER.search(text)
    if inside is not None and not Path(text).exists():
        return Member(Archive(_plain(text[: inside.start(1)])), text[inside.end(1) :])
    return _plain(text)


def _plain(text: str) -> Path | Remote:
    scheme = _SCHEME.match(text)
    if scheme is None:
        return Path(text)
    if scheme[1].lower() == "file":
        from urllib.parse import unquote

        return Path(unquote(text[scheme.end() :].removeprefix("localhost")))
    return Remote(text)


def folders(root: Place) -> Iterator[tuple[Place, list[str], list[str]]]:
    """As `os.walk`: (folder, names of folders in it, names of files); folders taken from the list are not entered."""
    if isinstance(root, Path):
        for folder, inner, names in os.walk(root):
            yield Path(folder), inner, names
        return
    inside: dict[str, tuple[set[str], list[str]]] = {"": (set(), [])}
    for file in root.files():
        parts = file.split("/")
        for depth in range(len(parts) - 1):
            inside["/".join(parts[:depth])][0].add(parts[depth])
            inside.setdefault("/".join(parts[: depth + 1]), (set(), []))
        inside["/".join(parts[:-1])][1].append(parts[-1])
    waiting = [""]
    while waiting:
        at = waiting.pop()
        inner, names = sorted(inside[at][0]), sorted(inside[at][1])
        yield (root / at if at else root), inner, names
        waiting += [f"{at}/{name}".lstrip("/") for name in reversed(inner)]
