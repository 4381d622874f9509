"""A file as bytes with the offsets of its lines, and the arguments of a call in it, to the byte."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

Change = tuple[int, int, bytes]  # from, to, what stands there instead


@dataclass(frozen=True, slots=True)
class Text:
    """A file with the offsets of its lines; columns of `ast` count UTF-8 bytes."""

    data: bytes
    starts: tuple[int, ...]

    def at(self, line: int, column: int) -> int:
        """The offset of a place as `ast` says it."""
        return self.starts[line - 1] + column

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """From where to where a node goes, brackets around it left out."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def line_start(self, offset: int) -> int:
        """Where the line of this offset begins."""
        return self.data.rfind(b"\n", 0, offset) + 1

    def line_end(self, offset: int) -> int:
        """Where the next line begins."""
        found = self.data.find(b"\n", offset)
        return found + 1 if found >= 0 else len(self.data)

    def has_own_line(self, one: Argument) -> bool:
        """Whether nothing stands before this argument in its line."""
        return not self.data[self.line_start(one.start) : one.start].strip()

    def holds(self, node: ast.expr) -> bool:
        """Whether the node stands where `ast` says: before Python 3.12, places inside of f-strings may be wrong."""
        start, end = self.span(node)
        try:
            there = ast.parse(b"(" + self.data[start:end] + b"\n)", mode="eval").body
        except (SyntaxError, ValueError):
            return False
        return ast.dump(there) == ast.dump(node)


def text_of(source: str) -> Text:
    """The source as bytes, with its lines."""
    data = source.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return Text(data, tuple(starts))


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a call, with brackets around it. name: None for a positional one; comma: behind it, or None."""

    name: str | None
    value: ast.expr
    start: int
    end: int
    comma: int | None


def arguments_of(text: Text, call: ast.Call) -> list[Argument]:
    """The arguments in the order in which they stand. What lies between them is brackets, commas and comments."""
    every: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    nodes = sorted(every, key=lambda one: (one.lineno, one.col_offset))
    found = []
    for place, node in enumerate(nodes):
        value = node.value if isinstance(node, ast.keyword) else node
        start, stop = text.at(node.lineno, node.col_offset), text.span(value)[1]
        following = nodes[place + 1] if place + 1 < len(nodes) else None
        until = text.at(following.lineno, following.col_offset) if following else text.span(call)[1] - 1
        comma, end = None, stop
        for offset in _signs(text.data, stop, until):
            if text.data[offset : offset + 1] == b",":
                comma = offset
                break
            end = offset + 1  # a closing bracket
        found.append(Argument(node.arg if isinstance(node, ast.keyword) else None, value, start, end, comma))
    return found


def _signs(data: bytes, start: int, end: int) -> Iterator[int]:
    """Offsets of commas and closing brackets outside of comments."""
    while start < end:
        sign = data[start : start + 1]
        if sign == b"#":
            start = data.find(b"\n", start) + 1 or end
            continue
        if sign in (b",", b")"):
            yield start
        start += 1


def on_own_lines(text: Text, last: Argument, new: Sequence[bytes]) -> list[Change]:
    """More arguments behind the last one, each on a line as that has; what follows it in its line stays with it."""
    first, following = text.line_start(last.start), text.line_end(last.end)
    indent = text.data[first : last.start]
    newline = b"\r\n" if text.data[:first].endswith(b"\r\n") else b"\n"
    stop = last.end if last.comma is None else last.comma + 1
    rest = text.data[stop:following].strip()
    if rest and not rest.startswith(b"#"):  # the closing bracket
        return [(last.end, last.end, b"".join(b"," + newline + indent + one for one in new))]
    lines = b"".join(indent + one + b"," + newline for one in new)
    comma = [(last.end, last.end, b",")] if last.comma is None else []
    return [*comma, (following, following, lines)]


def without(text: Text, arguments: Sequence[Argument], places: Collection[int]) -> list[Change]:
    """Arguments go, with their commas; where lines hold nothing else, they go whole, their comments included."""
    changes = [_out(text, arguments[place]) for place in places]
    kept = max((place for place in range(len(arguments)) if place not in places), default=-1)
    if not arguments or arguments[-1].comma is not None or kept in (-1, len(arguments) - 1):
        return changes
    start, end = arguments[kept].end, arguments[-1].end
    if b"#" in text.data[start:end] or b"\n" in text.data[start:end]:
        return changes  # the comma behind the last one that is kept stays, as Python allows
    return [_out(text, arguments[place]) for place in places if place < kept] + [(start, end, b"")]


def _out(text: Text, one: Argument) -> Change:
    stop = one.end if one.comma is None else one.comma + 1
    first, last = text.line_start(one.start), text.line_end(stop)
    rest = text.data[stop:last].strip()
    if not text.data[first : one.start].strip() and (not rest or rest.startswith(b"#")):
        return first, last, b""
    blanks = text.data[stop:last]
    return one.start, stop + (len(blanks) - len(blanks.lstrip(b" \t")) if one.comma is not None else 0), b""
