"""The text around the events: top-level keys before and after them, and what a file without events is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from advisor.errors import InputError
from advisor.trace.repair.event_by_event import Careful
from advisor.trace.repair.mend import mended

# What the reader takes of the top level; sought one by one where the text around is damaged.
_WANTED = (
    *("baseTimeNanoseconds", "deviceProperties", "distributedInfo", "rank", "world_size", "trace_id"),
    *("record_shapes", "with_stack", "profile_memory", "cupti_version", "cuda_runtime_version", "cuda_driver_version"),
    *("hip_runtime_version", "hip_driver_version"),
)
_EVENTS = re.compile(r'"traceEvents"\s*:')


def facts(head: bytes, careful: Careful, path: str, shape: str) -> dict[str, Any]:
    """The top-level keys. Raises InputError where several documents were written into one file."""
    tail = "".join(careful.tail or ())
    lists = 1 + careful.documents + len(_EVENTS.findall(tail))
    if shape == "object" and lists > 1:
        raise InputError(
            f"{path}: {lists} traces in one file: several ranks wrote to one path; record again with one path per rank"
        )
    known: dict[str, Any] = {}
    for text in (head.decode("utf-8", "replace").lstrip("\ufeff"), tail):
        part = _object(text)
        if part is None:
            part = _salvaged(text)
            careful.count("head")
        known = _merged(known, part)
    return known


def _object(text: str) -> dict[str, Any] | None:
    """The keys in a piece of an object: its outer braces and commas may be missing."""
    inner = text.strip().strip("\x00").strip()
    inner = inner.removeprefix("{") if not text.lstrip().startswith("{}") else ""
    inner = inner.strip().strip(",").rstrip()
    if inner.count("}") > inner.count("{"):
        inner = inner.removesuffix("}")
    if not inner.strip():
        return {}
    try:
        value = json.loads("{" + inner.strip().strip(",") + "}", strict=False, object_pairs_hook=_pairs)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose key stands twice (`distributedInfo`): objects are merged, else the last one counts."""
    known: dict[str, Any] = {}
    for key, value in pairs:
        known = _merged(known, {key: value})
    return known


def _merged(known: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    merged = dict(known)
    for key, value in more.items():
        before = merged.get(key)
        merged[key] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    return merged


def _salvaged(text: str) -> dict[str, Any]:
    """The wanted keys, each read by itself."""
    known: dict[str, Any] = {}
    for key in _WANTED:
        found = re.search(rf'"{key}"\s*:\s*', text)
        if found is None:
            continue
        try:
            known[key] = json.JSONDecoder(strict=False).raw_decode(text, found.end())[0]
        except (ValueError, RecursionError):
            value = mended("{" + text[found.start() : found.end() + 4096].split("\n", 1)[0].rstrip(",") + "}")
            if isinstance(value, dict) and key in value:
                known[key] = value[key]
    return known


def no_events(text: bytes, path: str) -> str:
    """One line for a JSON file without `traceEvents`: what it is, and what to do."""
    start = text[: 1 << 16]
    return f"{path}: {_kind(start, text)}"


_GIVE = "pass the *.pt.trace.json[.gz] file"
_KINDS: tuple[tuple[tuple[bytes, ...], str], ...] = (
    ((b'"torch-advisor/run"',), "a run.json, the record of a run; pass the folder that contains it"),
    ((b'"torch-advisor/report"',), "a stored report, as `advisor gate` reads it; pass the trace itself"),
    ((b'"nodes"', b'"schema"'), f"an execution trace (ExecutionTraceObserver), which has no times; {_GIVE}"),
    ((b'"schemaVersion"',), "a trace without events; record again with steps inside the window"),
    ((b'"deviceProperties"',), "a trace without events; record again with steps inside the window"),
)


def _kind(start: bytes, text: bytes) -> str:
    if not text.strip(b" \t\r\n\x00"):
        return "an empty file (the run that wrote it was stopped early?); record again"
    for marks, what in _KINDS:
        if all(mark in start for mark in marks):
            return what
    if start.lstrip()[:1] == b"{":
        return f"JSON, but not a Kineto trace (no `traceEvents`); {_GIVE}"
    return f"not JSON, so not a Kineto trace; {_GIVE}"


def empty_reason(known: Mapping[str, Any]) -> str:
    """Why a trace without a single row gives nothing."""
    what = "a trace without events" if known else "a list without a single event"
    return f"{what}; record again with steps inside the window"
