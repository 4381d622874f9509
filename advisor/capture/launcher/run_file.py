"""run.json as it is written: whole at every moment, of at most 2 MB."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

MOST_BYTES: Final = 2_000_000

_NEEDED: Final = ("rank", "local_rank", "local_world_size", "world_size", "pid", "files", "settings")

# What may be left out where run.json would be larger, the least needed first: path in a rank's record, what it is.
_OPTIONAL: Final = (
    (("steps", "unprofiled_parts_us"), "the parts of un-profiled steps"),
    (("steps", "profiled_parts_us"), "the parts of profiled steps"),
    (("gc_pauses_us",), "garbage collections"),
    (("user_files",), "the names of the script's files"),
    (("model", "modules"), "the modules of the model"),
    (("later", "model"), "the models of later windows"),
    (("vitals",), "threads and memory"),
    (("environment",), "the environment"),
    (("warnings",), "warnings"),
    (("loaders",), "arguments of loaders"),
    (("steps", "unprofiled_us"), "the times of un-profiled steps"),
    (("notes",), "notes"),
)


def write(folder: Path, record: dict[str, Any]) -> None:
    """Writes run.json, aside first, then renamed."""
    aside = folder / ".run.json.tmp"
    aside.write_bytes(_fitting(record))
    aside.replace(folder / "run.json")


def _fitting(record: dict[str, Any]) -> bytes:
    """The record as JSON of at most MOST_BYTES: what does not fit is left out, and said."""
    content = _readable(record)
    for path, what in _OPTIONAL:
        if len(content) <= MOST_BYTES:
            return content
        note = f"run.json is kept below {MOST_BYTES // 10**6} MB: {what} were omitted"
        record = {**record, "ranks": [_said(_without(rank, path), note) for rank in record["ranks"]]}
        content = _readable(record)
    if len(content) > MOST_BYTES:
        record = {**record, "ranks": [_bare(rank) for rank in record["ranks"]]}
        content = _readable(record)
    while len(content) > MOST_BYTES and len(record["ranks"]) > 1:
        count = len(record["ranks"]) // 2
        first, *others = record["ranks"][:count]
        note = f"run.json is kept below {MOST_BYTES // 10**6} MB: it contains only the first {count} ranks"
        record = {**record, "ranks": [{**first, "notes": [note]}, *others]}
        content = _readable(record)
    return content


def _bare(rank: dict[str, Any]) -> dict[str, Any]:
    """What a report cannot do without."""
    note = f"run.json is kept below {MOST_BYTES // 10**6} MB: for this process it contains only the names of its traces"
    return {**{key: rank[key] for key in _NEEDED if key in rank}, "notes": [note]}


def _without(rank: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    first, *rest = path
    if first not in rank:
        return rank
    if rest and isinstance(rank[first], dict):
        return {**rank, first: _without(rank[first], tuple(rest))}
    if rest and isinstance(rank[first], list):
        return {**rank, first: [_without(one, tuple(rest)) for one in rank[first]]}
    return {key: value for key, value in rank.items() if key != first}


def _said(rank: dict[str, Any], note: str) -> dict[str, Any]:
    return {**rank, "notes": [*rank.get("notes", []), note]}


def _readable(record: dict[str, Any]) -> bytes:
    """One line for each fact: what a list of numbers holds stands on one line."""
    return ("".join(_lines(record, 0)) + "\n").encode()


def _lines(value: Any, depth: int) -> Iterator[str]:
    deeper = "\n" + " " * (depth + 1)
    if isinstance(value, dict) and value:
        for number, (key, one) in enumerate(value.items()):
            yield ("," if number else "{") + deeper + _in_json(key) + ": "
            yield from _lines(one, depth + 1)
        yield "\n" + " " * depth + "}"
    elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
        for number, one in enumerate(value):
            yield ("," if number else "[") + deeper
            yield from _lines(one, depth + 1)
        yield "\n" + " " * depth + "]"
    else:
        yield _in_json(value)


def _in_json(value: Any) -> str:
    """The value as JSON that every reader takes: bytes of a name that are no text are written as `\\udce9`."""
    text = json.dumps(value)
    return json.dumps(_of_text(value)) if "\\udc" in text else text


def _of_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_of_text(key): _of_text(one) for key, one in value.items()}
    return [_of_text(one) for one in value] if isinstance(value, list) else value
