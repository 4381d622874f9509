"""Which file and which line of one report are the same in the other: scripts get other names, and edits move lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import PurePath

from msgspec.structs import replace

from advisor.model import OpRow, Report

# What a file is to its run; "" is the script.
Role = Callable[[str], str]
_LINE = re.compile(r"(?P<file>.+):(?P<line>\d+)(?: (?P<function>.*))?")


def script_of(report: Report) -> str:
    """The script of the command; empty where it names none."""
    return next((word for word in report.run.command if word.endswith(".py")), "")


def role_of(report: Report) -> Role:
    """Names the script "", files below its folder by their path from there, and others by their own path.

    So files are the same in two checkouts, and in two scripts of different names.
    """
    script = PurePath(script_of(report))

    def role(file: str) -> str:
        path = PurePath(file)
        if not script.name:
            return file
        # The command names it from where it was started, its lines from where the process was then.
        long, short = (path, script) if path.is_absolute() else (script, path)
        if long.parts[-len(short.parts) :] == short.parts:
            return ""
        return path.relative_to(script.parent).as_posix() if path.is_relative_to(script.parent) else file

    return role


def named_alike(base: Report, head: Report) -> Report:
    """The head, whose counters of the script's lines have the ids that they have in the base."""
    before, after = (f"sync:{script_of(report)} " for report in (base, head))
    if before == after:
        return head
    ids = (f"{before}{one.id.removeprefix(after)}" if one.id.startswith(after) else one.id for one in head.counters)
    return replace(head, counters=tuple(replace(one, id=id_) for one, id_ in zip(head.counters, ids, strict=True)))


def same_lines(base: Report, head: Report) -> tuple[tuple[OpRow, ...], tuple[OpRow, ...]]:
    """The lines of both reports; where a line is the same in both, it has one name on both sides.

    The same: of the same file and function, with the same text; where the text of a side was not recorded, with the
    same number. The name is that of the head, and says the base's where that is another.
    """
    by_text = bool(base.line_marks and head.line_marks)
    before = {key: row for row, key in _keyed(base, by_text)}
    renamed, after = {}, []
    for row, key in _keyed(head, by_text):
        old = before.get(key)
        name = row.name if old is None or old.name == row.name else f"{row.name} (A: {_place(old.name)})"
        after.append(replace(row, name=name))
        if old is not None:
            renamed[old.name] = name
    return tuple(replace(row, name=renamed.get(row.name, row.name)) for row in base.lines), tuple(after)


def _keyed(report: Report, by_text: bool) -> Iterator[tuple[OpRow, tuple[str, ...]]]:
    role = role_of(report)
    for row in report.lines:
        found = _LINE.fullmatch(row.name)
        if found is None:
            yield row, (row.name,)
            continue
        mark = report.line_marks.get(row.name, "") if by_text else ""
        yield row, (role(found["file"]), found["function"] or "", mark or f"line {found['line']}")


def _place(name: str) -> str:
    """`slow.py:12` of `a/slow.py:12 main`."""
    return PurePath(name.partition(" ")[0]).name
