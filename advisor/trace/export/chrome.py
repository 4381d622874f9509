"""Tracks of several processes as one file of Chrome's JSON, which Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

# Room for a rank's own tracks; those of rows that overlap others of their track lie between.
_TRACK_STEP = 10
# Written into every file, and looked for by whoever must not take such a file for a recorded trace.
MARK = "torchAdvisor"


class Row(NamedTuple):
    """One bar. Times are ns on the common clock."""

    start_ns: int
    end_ns: int
    name: str
    category: str
    args: Mapping[str, Any]


class Track(NamedTuple):
    """Bars of one line of a process, in any order. Bars that overlap without nesting get lines of their own."""

    name: str
    rows: Sequence[Row]


class Process(NamedTuple):
    """What one rank is drawn as. number: its place, from 0."""

    number: int
    name: str
    tracks: Sequence[Track]


def text_of(processes: Iterable[Process], base_ns: int, about: Mapping[str, Any]) -> Iterator[str]:
    """The file in pieces; times are µs from `base_ns`. about: stands under `MARK`; read last, so it may still grow."""
    yield f'{{"displayTimeUnit": "ms", "{MARK}Version": 1, "traceEvents": [\n'
    first = True
    for process in processes:
        for event in _events(process, base_ns):
            yield ("" if first else ",\n") + json.dumps(event)
            first = False
    yield f'\n], "{MARK}": {json.dumps(about)}}}\n'


def _events(process: Process, base_ns: int) -> Iterator[dict[str, Any]]:
    pid = process.number + 1  # Perfetto takes process 0 for the idle task
    yield _named("process_name", pid, 0, {"name": process.name})
    yield _named("process_sort_index", pid, 0, {"sort_index": process.number})
    for place, track in enumerate(process.tracks):
        for line, rows in enumerate(nested(track.rows)):
            # Each of many overlapping lines needs a number that no other track has.
            tid = _TRACK_STEP * (place + 1) + line if line < _TRACK_STEP else 10_000 * (place + 1) + line
            name = track.name if not line else f"{track.name} ({line + 1})"
            yield _named("thread_name", pid, tid, {"name": name})
            yield _named("thread_sort_index", pid, tid, {"sort_index": tid})
            for row in rows:
                yield {
                    "ph": "X",
                    "cat": row.category,
                    "name": row.name,
                    "pid": pid,
                    "tid": tid,
                    "ts": (row.start_ns - base_ns) / 1000,
                    "dur": (row.end_ns - row.start_ns) / 1000,
                    "args": row.args,
                }


def _named(what: str, pid: int, tid: int, args: Mapping[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}


def nested(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows as lines in each of which any two are disjoint or one holds the other; the fewest go past the first."""
    lines: list[list[Row]] = []
    open_ends: list[list[int]] = []
    for row in sorted(rows, key=lambda row: (row.start_ns, -row.end_ns)):
        for line, ends in zip(lines, open_ends, strict=True):
            while ends and ends[-1] <= row.start_ns:
                ends.pop()
            if not ends or row.end_ns <= ends[-1]:
                line.append(row)
                ends.append(row.end_ns)
                break
        else:
            lines.append([row])
            open_ends.append([row.end_ns])
    return lines
