"""JSON Schemas of what Torch Advisor writes, generated from the structs that it is written from.

A writer without a struct has none here: the gate's baseline file, and the card of `advisor try --export`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import msgspec

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]


def names() -> tuple[str, ...]:
    """The files that have a schema."""
    return tuple(_SCHEMAS)


def schema(name: str) -> Schema:
    """The schema of one of `names()`."""
    return {"$schema": _DIALECT, "title": name} | _SCHEMAS[name]()


def as_text(name: str) -> str:
    """The schema as an indented JSON document; the same bytes each time."""
    return msgspec.json.format(msgspec.json.encode(schema(name)), indent=1).decode() + "\n"


def _of(kind: Any) -> Schema:
    return {key: _cleaned(value) for key, value in msgspec.json.schema(kind).items()}


def _cleaned(value: Any) -> Any:
    """The schema as all versions of msgspec tell it.

    Before 0.23 descriptions keep the indentation of docstrings, and mappings that are empty by default do not say so.
    """
    if isinstance(value, list):
        return [_cleaned(one) for one in value]
    if not isinstance(value, dict):
        return value
    kept = {key: _cleaned(one) for key, one in value.items() if (key, one) != ("default", {})}
    said = kept.get("description")
    return kept | ({"description": inspect.cleandoc(said)} if isinstance(said, str) else {})


def _report() -> Schema:
    from advisor.model import Report

    return _of(Report)


def _run() -> Schema:
    from advisor.capture.record import RunRecord

    return _of(RunRecord)


def _gate() -> Schema:
    """The gate's JSON holds the exit status beside the fields of its struct."""
    from advisor.gate.model import EXIT_CODES, Result

    found = _of(Result)
    result = found["$defs"]["Result"]
    result["properties"]["exit_code"] = {"enum": sorted(set(EXIT_CODES.values()))}
    result["required"] = [*result["required"], "exit_code"]
    return found


def _compare() -> Schema:
    from advisor.gate.difference import Difference

    return _of(Difference)


def _reduced() -> Schema:
    from advisor.engine import reduced_form

    return _of(reduced_form.COMPARED) | {
        "description": "The first of the two pieces of a reduced form (.rank), unpacked; its columns are binary."
    }


def _reduced_detail() -> Schema:
    from advisor.engine.rank_result import RankDetail

    return _of(RankDetail) | {"description": "The second piece of a reduced form (.rank), unpacked."}


_SCHEMAS: dict[str, Callable[[], Schema]] = {
    "report": _report,
    "run": _run,
    "gate": _gate,
    "compare": _compare,
    "reduced": _reduced,
    "reduced-detail": _reduced_detail,
}
