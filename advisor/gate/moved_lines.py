"""Time by the user's lines on both sides, with lines matched through the change of the source between them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path

from advisor.gate.model import Cause
from advisor.model import OpRow, Report

# Differences below this share of the step are the noise of two single profiles.
_LEAST_SHARE = 0.01


def changed_lines(base: Report, head: Report, base_folder: Path, head_folder: Path, step_us: float) -> list[Cause]:
    """Lines whose time per step changed, largest first; a line that only one side has is new or gone."""
    before, after = _by_place(base), _by_place(head)
    matched: set[tuple[str, int]] = set()
    found = []
    for (file, line), row in after.items():
        old = _old_line(file, line, base_folder, head_folder)
        earlier = before.get((file, old)) if old is not None else None
        if old is not None and earlier is not None:
            matched.add((file, old))
        found.append(_cause(file, line, earlier, row))
    found += [_cause(*place, row, None) for place, row in before.items() if place not in matched]
    moved = [cause for cause in found if abs(cause.change) > _LEAST_SHARE * step_us]
    return sorted(moved, key=lambda cause: -abs(cause.change))


def _by_place(report: Report) -> dict[tuple[str, int], OpRow]:
    found = {}
    for row in report.lines:
        place = re.match(r"(.+):(\d+)(?: |$)", row.name)
        if place:
            found[place[1], int(place[2])] = row
    return found


def _cause(file: str, line: int, base: OpRow | None, head: OpRow | None) -> Cause:
    known = head or base
    function = known.name.partition(" ")[2] if known else ""
    name = f"{Path(file).name}:{line} {function}".rstrip()
    mark = " (new)" if base is None else " (gone)" if head is None else ""
    # A gone line is no line of the head, so nothing may point there.
    where = f"{file}:{line}" if head else ""
    return Cause("line", name + mark, base.us if base else None, head.us if head else None, "us", where)


def _old_line(file: str, line: int, base_folder: Path, head_folder: Path) -> int | None:
    """The line of the base that this line of the head was; None for a new one. Without sources: the same number."""
    try:
        old, new = ((folder / file).read_text("utf-8", "replace").splitlines() for folder in (base_folder, head_folder))
    except OSError:
        return line
    return next((before for before, after in _kept(old, new) if after == line), None)


def _kept(old: list[str], new: list[str]) -> Iterator[tuple[int, int]]:
    """(line before, line after) of every line that both texts hold; lines count from 1."""
    for block in difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
        yield from ((block.a + i + 1, block.b + i + 1) for i in range(block.size))
