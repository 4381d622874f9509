"""The table of fields agrees with the structs, the reader of damaged rows, the columns and the C scanner."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import msgspec
import pytest

from advisor.trace import events, fields, schema
from advisor.trace.read import extract
from advisor.trace.repair.event_by_event import Careful

NATIVE = Path(extract.__file__).parent / "native" / "rows.c"
VALUES = {"integer": 7, "json": [[1, 2]], "text": "words", "grid": [2, 3, 4], "any": "8"}
# What a collective or a synchronisation row says besides: the scanner leaves rows with these to the structs.
NOT_SCANNED = {field.key for field in fields.ARGS if field.column == "collective"} - {"Collective name"}


def keys(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The attributes of a struct by their keys in the file."""
    return {one.encode_name: one.name for one in msgspec.structs.fields(struct)}


def table(rows: tuple[fields.Field, ...]) -> dict[str, str]:
    found = {field.key: field.name for field in rows}
    assert len(found) == len(rows), "a key stands there twice"
    return found


def scanned(name: str) -> set[str]:
    """The keys of a list in the C scanner."""
    found = re.search(rf"static const Key {name}\[\] = {{(.*?)}};", NATIVE.read_text("utf-8"), re.DOTALL)
    assert found
    return set(re.findall(r'KEY\("([^"]+)"', found[1]))


def test_the_structs_have_these_fields() -> None:
    assert keys(schema.RowArgs) == table(fields.ARGS)
    assert keys(schema.InstantArgs) == table(fields.MEMORY)
    assert keys(schema.Row) == {**table(fields.ROW), "args": "args"}


def test_the_scanner_has_these_keys() -> None:
    """One list serves the `args` of events and of `[memory]` instants."""
    expected = {field.key for field in (*fields.ARGS, *fields.MEMORY)}
    assert scanned("ARGS_KEYS") == expected - NOT_SCANNED
    assert scanned("ROW_KEYS") == {field.key for field in fields.ROW} | {"ph", "args"}


def test_every_column_has_a_field_and_every_field_a_column() -> None:
    named = {field.column for field in (*fields.ROW, *fields.ARGS)}
    assert named == set(extract.COLUMNS)
    assert named <= {one.name for one in dataclasses.fields(events.Events)}
    memory = {field.column for field in fields.MEMORY} | {"time_ns"}
    assert memory == set(extract.MEMORY_COLUMNS) == {one.name for one in dataclasses.fields(events.MemoryEvents)}


@pytest.mark.parametrize("field", fields.ARGS, ids=lambda field: field.name)
def test_a_damaged_slice_is_read_as_a_sound_one(field: fields.Field) -> None:
    """The reader of single events keeps the field as the decoder of whole slices does."""
    row = {"ph": "X", "name": "a", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    row["args"] = {field.key: VALUES[field.kind]}
    (alone,) = Careful().read(json.dumps(row).encode(), last=True)
    (decoded,) = schema.decoder(False).decode(json.dumps([row]))
    assert plain(getattr(alone.args, field.name)) == plain(getattr(decoded.args, field.name))
    assert getattr(alone.args, field.name) != getattr(schema.RowArgs(), field.name)


@pytest.mark.parametrize("field", fields.MEMORY, ids=lambda field: field.name)
def test_a_damaged_slice_keeps_memory(field: fields.Field) -> None:
    row = {"ph": "i", "name": "[memory]", "ts": 1, "args": {field.key: 7}}
    (alone,) = Careful().read(json.dumps(row).encode(), last=True)
    assert getattr(alone.args, field.name) == 7


def plain(value: object) -> object:
    """Raw JSON as what it says."""
    return json.loads(bytes(value)) if isinstance(value, msgspec.Raw) else value
