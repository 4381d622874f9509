"""Results over time: one line of JSON for each, in a file of the user's own that is only ever added to."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from advisor.errors import INCONCLUSIVE, USAGE
from advisor.gate import fingerprint
from advisor.gate.files import GateError, read_bytes
from advisor.model import Report

SCHEMA = "torch-advisor/history"
VERSION = 1
DEFAULT = "perf-history.jsonl"


@dataclass(frozen=True, slots=True)
class Entry:
    """One result.

    commit    as recorded, "" where unknown;  dirty: files of the commit had been changed
    when      time of recording, ISO 8601
    metrics   what was measured: id -> value;  units: id -> unit
    """

    commit: str
    when: str
    workload: str
    fingerprint: dict[str, str]
    metrics: dict[str, float]
    units: dict[str, str] = field(default_factory=dict)
    dirty: bool = False
    schema: str = SCHEMA
    version: int = VERSION


def entry_of(report: Report, commit: str, when: str, *, dirty: bool = False) -> Entry:
    """The line of a report. Raises GateError where it has no step time."""
    if report.step_us is None:
        raise GateError("the report has no step time, so there is nothing to add", INCONCLUSIVE)
    measured = {id_: m for id_, m in sorted(report.metrics.items()) if m.status == "measured" and m.value is not None}
    return Entry(
        commit=commit,
        when=when,
        workload=fingerprint.workload(report.run.command),
        fingerprint=fingerprint.of_report(report),
        metrics={id_: float(m.value or 0.0) for id_, m in measured.items()},
        units={id_: m.unit for id_, m in measured.items()},
        dirty=dirty,
    )


def append(path: Path, entry: Entry) -> None:
    """Adds the line, in one write. Raises GateError where the file cannot be written."""
    line = msgspec.json.encode(entry) + b"\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            if end:
                file.seek(end - 1)
                # A line that was cut off ends here, or it would take this one with it.
                line = line if file.read(1) == b"\n" else b"\n" + line
            file.write(line)
            os.fsync(file.fileno())
    except OSError as failure:
        raise GateError(f"{path}: cannot write the history ({failure.strerror})", USAGE) from failure


def read(path: Path) -> tuple[list[Entry], list[str]]:
    """The entries in their order, and a sentence for each line that is not one. Raises GateError without the file."""
    data = read_bytes(path, "history", "no such history; create one with `advisor gate history add report.json`")
    entries, damaged = [], []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            entry = msgspec.json.decode(line, type=Entry)
        except (msgspec.MsgspecError, UnicodeDecodeError) as failure:
            damaged.append(f"{path}, line {number}: damaged and ignored ({failure})")
            continue
        if entry.schema != SCHEMA or entry.version > VERSION:
            damaged.append(f"{path}, line {number}: ignored, not a line that this version of torch-advisor reads")
        else:
            entries.append(entry)
    return entries, damaged
