"""The careful path: events one by one, from text that the fast decoder refused.

Each event is read by itself, so that one bad byte costs at most its own event. What can be mended is mended and
counted; what cannot is skipped and counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from msgspec import Raw

from advisor.trace.fields import ARGS, MEMORY, Kind
from advisor.trace.numbers import ABSENT, nanoseconds
from advisor.trace.repair.mend import mended
from advisor.trace.schema import BOUNDARY, Instant, InstantArgs, LabelArgs, LabelRow, Row, RowArgs

# Attempts per slice to read an event that goes on past the next boundary (a list of objects in its args).
LONG_ATTEMPTS = 64
LONG_EVENT = 1 << 20
_SKIPPED = frozenset("stfCNODRPvVc(),n")
_PAST = " \t\r\n,\x00\ufeff"
# What may follow the end of the list of events: other keys, the end of the object, the end of the file.
END = re.compile(r'\]\s*(?:,\s*"[^"\n]+"\s*:|\}|\x00*\Z)')
CLOSING = re.compile(r'\}\s*+\]\s*+(?:\}|,\s*+"|\x00*+\Z)')
CLOSING_ATTEMPTS = 64
EVENTS = re.compile(r'"traceEvents"\s*:\s*\[')
DECODER = json.JSONDecoder(strict=False, parse_float=Decimal)


class Careful:
    """Reads slices in order; keeps what goes on from one slice to the next."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.carry = ""
        self.documents = 0  # further lists of events that were written into the middle of this one
        self.tail: list[str] | None = None
        self._open: dict[tuple[Any, Any], list[Row]] = {}

    def count(self, reason: str, number: int = 1) -> None:
        """Notes `number` events as repaired or lost."""
        self.counts[reason] = self.counts.get(reason, 0) + number

    def read(self, piece: bytes, last: bool = False) -> list[Any]:
        """The rows in a slice. After the end of the list, text goes to `tail`; an unfinished event to `carry`."""
        text = self.carry + self._text(piece)
        self.carry = ""
        if self.tail is not None:
            self.tail.append(text)
            return []
        rows: list[Any] = []
        position, attempts = 0, LONG_ATTEMPTS
        while position < len(text):
            if text[position] in _PAST:
                position += 1
                continue
            if text[position] == "]" and END.match(text, position):
                self.tail = [text[position + 1 :]]
                break
            boundary = BOUNDARY.search(text, position)
            end = boundary.start() + 1 if boundary else len(text)
            event = self._event(text[position:end]) if boundary else None
            if event is None and (attempts > 0 or not boundary):
                attempts -= 1
                found = _long(text, position)
                if found is not None:
                    event, end = found
            if event is None and not boundary:
                end, event = self._last(text, position, last)
            elif event is None:
                event = self._mend(text[position:end])
            if event is not None:
                self._row(event, rows)
            position = end
        return rows

    def finish(self) -> None:
        """Counts what was started but never ended."""
        begun = sum(len(rows) for rows in self._open.values())
        if begun:
            self.count("started but never ended", begun)

    def _text(self, piece: bytes) -> str:
        try:
            return piece.decode()
        except UnicodeDecodeError:
            self.count("bytes")
            return piece.decode("utf-8", "replace")

    @staticmethod
    def _event(text: str) -> Any:
        try:
            return DECODER.decode(text)
        except (ValueError, RecursionError, ArithmeticError):
            return None

    def _last(self, text: str, position: int, last: bool) -> tuple[int, Any]:
        """The rest of a slice without another boundary: an event cut in two, or a damaged one before the list's end."""
        closing = _closing(text, position)
        if closing is not None:
            return closing, self._mend(text[position:closing])
        if not last and len(text) - position < LONG_EVENT:
            self.carry = text[position:]
            return len(text), None
        return len(text), self._mend(text[position:], "cut off" if last else "lost")

    def _mend(self, text: str, otherwise: str = "lost") -> Any:
        """A damaged event, mended if it can be; counted either way."""
        event = mended(text)
        self.count("repaired" if event is not None else otherwise)
        if event is None:
            self.documents += len(EVENTS.findall(text))
        return event

    def _row(self, event: Any, rows: list[Any]) -> None:
        if not isinstance(event, Mapping):
            return self.count("no object")
        phase = event.get("ph")
        if phase == "X" or (phase is None and "dur" in event and "ts" in event):
            rows.append(row_of(event))
        elif phase in ("i", "I"):
            rows.append(_instant(event))
        elif phase == "M":
            args = event.get("args")
            name = args.get("name") if isinstance(args, Mapping) else None
            rows.append(
                LabelRow(_string(event.get("name")), _label(event, "pid"), _label(event, "tid"), LabelArgs(name))
            )
        elif phase == "B":
            self._open.setdefault((str(event.get("pid")), str(event.get("tid"))), []).append(row_of(event))
        elif phase == "E":
            self._end(event, rows)
        elif not (isinstance(phase, str) and (phase in _SKIPPED or phase in "beSTpF")):
            self.count("of an unknown kind")
        return None

    def _end(self, event: Mapping[str, Any], rows: list[Any]) -> None:
        begun = self._open.get((str(event.get("pid")), str(event.get("tid"))))
        if not begun:
            return self.count("ended but never started")
        row = begun.pop()
        start, end = nanoseconds(row.ts), nanoseconds(event.get("ts"))
        if ABSENT not in (start, end):
            row.dur = Decimal(end - start) / 1000  # type: ignore[assignment]
        rows.append(row)
        return None


def _long(text: str, position: int) -> tuple[Any, int] | None:
    """An event that goes on past the next boundary, and its end."""
    try:
        window = text[position : position + LONG_EVENT]
        event, length = DECODER.raw_decode(window)
    except (ValueError, RecursionError, ArithmeticError):
        return None
    return event, position + length


def _closing(text: str, position: int) -> int | None:
    """Where the last event ends, if the list of events is closed after it."""
    for number, found in enumerate(CLOSING.finditer(text, position)):
        end = found.start() + 1
        if text.count("{", position, end) <= text.count("}", position, end):
            return end
        if number == CLOSING_ATTEMPTS:
            break
    return None


def row_of(event: Mapping[str, Any]) -> Row:
    """A complete event from a plain dictionary, whatever the types in it."""
    args = event.get("args")
    return Row(
        cat=_string(event.get("cat")),
        name=_string(event.get("name")),
        pid=_label(event, "pid"),
        tid=_label(event, "tid"),
        ts=_number(event.get("ts")),
        dur=_number(event.get("dur")),
        args=_args(args) if isinstance(args, Mapping) and args else None,
    )


_ARGS = {field.key: field for field in ARGS}


def _args(args: Mapping[str, Any]) -> RowArgs:
    made = RowArgs()
    for key, value in args.items():
        if key in _ARGS:
            field = _ARGS[key]
            setattr(made, field.name, _READ[field.kind](value))
    return made


def _integer(value: Any) -> Any:
    number = _number(value)
    return -1 if number is None else number


def _grid(value: Any) -> list[float] | None:
    return [float(side) for side in value if isinstance(side, int | Decimal)] if isinstance(value, list) else None


def _instant(event: Mapping[str, Any]) -> Instant:
    args = event.get("args")
    if not isinstance(args, Mapping):
        return Instant(_string(event.get("name")), _number(event.get("ts")), None)
    known = InstantArgs(**{field.name: _number(args.get(field.key)) for field in MEMORY})
    return Instant(_string(event.get("name")), _number(event.get("ts")), known)


def _string(value: Any) -> str | None:
    """Text that can be written again: a lone surrogate cannot."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else None


def _label(event: Mapping[str, Any], key: str) -> Any:
    value = event.get(key)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Decimal):  # as the fast paths show it, so that a thread has one label in a damaged file, too
        return float(value)
    return value if isinstance(value, int) else None


def _number(value: Any) -> Any:
    """A number as it stands (int, Decimal), or read from text; None for anything else."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | Decimal):
        return value
    try:
        number = Decimal(str(value))
    except ArithmeticError:
        return None
    return number if number.is_finite() else None


# By the kind of a field.
_READ: dict[Kind, Callable[[Any], Any]] = {
    "integer": _integer,
    "json": lambda value: Raw(json.dumps(value, default=str).encode()),
    "text": _string,
    "grid": _grid,
    "any": lambda value: value,
}
