"""The baseline file: counters of a known-good commit, checked in, small, sorted, one figure per line.

Times never stand in it: they belong to one machine and one hour. Several environments share a file; an entry is found
by what was run and by the fingerprint of the environment.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from advisor.errors import INCONCLUSIVE, USAGE
from advisor.gate import fingerprint
from advisor.gate.counters import DETAIL, NEUTRAL, TOLERANCES, Count, counts_of
from advisor.gate.files import GateError, check_version, parse_json, read_bytes
from advisor.model import Report, Unit

SCHEMA = "torch-advisor/baseline"
VERSION = 1
# Old enough that torch, drivers and data have usually moved on.
OLD_AFTER_DAYS = 90


@dataclass(frozen=True, slots=True)
class Entry:
    """Counters of one workload in one environment.

    written   ISO date of the day on which it was measured
    counters  id -> value per step; only those that were the same in every step and every run
    unsteady  ids that were left out because they varied
    findings  rule -> number of findings
    """

    workload: str
    fingerprint: Mapping[str, str]
    written: str
    counters: Mapping[str, float]
    unsteady: tuple[str, ...] = ()
    findings: Mapping[str, int] | None = None

    def counts(self) -> dict[str, Count]:
        """The counters as the comparison wants them; unsteady ones have no value."""
        known = {id_: Count(id_, unit_of(id_), value) for id_, value in self.counters.items()}
        left_out = {id_: Count(id_, unit_of(id_), None, False, "it varied when written") for id_ in self.unsteady}
        return {**known, **left_out}


@dataclass(frozen=True, slots=True)
class Baseline:
    """All entries of a file."""

    entries: tuple[Entry, ...] = ()

    def find(self, workload: str, environment: Mapping[str, str]) -> Entry | None:
        """The entry of that workload in that environment."""
        for entry in self.entries:
            if entry.workload == workload and entry.fingerprint == environment:
                return entry
        return None

    def why_none(self, workload: str, environment: Mapping[str, str]) -> str:
        """Why there is no entry, with the nearest one."""
        same = [entry for entry in self.entries if entry.workload == workload]
        if not same:
            known = ", ".join(sorted({f"'{entry.workload}'" for entry in self.entries})) or "nothing"
            return f"the baseline has {known}, but not '{workload}'"
        apart = min((_apart(entry.fingerprint, environment) for entry in same), key=len)
        return f"the baseline of '{workload}' is of another environment: {'; '.join(apart)}"

    def put(self, entry: Entry) -> Baseline:
        """The file with this entry in place of the one of the same workload and environment."""
        others = (old for old in self.entries if (old.workload, old.fingerprint) != (entry.workload, entry.fingerprint))
        return replace(self, entries=tuple(sorted([*others, entry], key=_order)))


def entry_of(reports: Iterable[Report], today: datetime.date) -> Entry:
    """The entry that one or more profiles of the same code make; what differs between or in them is left out.

    Raises GateError where nothing can be held: no steps, no counters.
    """
    several = list(reports)
    report = several[0]
    if report.steps.count <= 0 or report.steps.source == "window":
        raise GateError("the run has no steps, so there is nothing to store; see `advisor run --help`", INCONCLUSIVE)
    runs = [counts_of(one) for one in several]
    steady: dict[str, float] = {}
    unsteady: list[str] = []
    for id_ in sorted(set().union(*runs)):
        counts = [run.get(id_) for run in runs]
        values = {count.value if count else 0.0 if DETAIL in id_ else None for count in counts}
        value = next(iter(values))
        within = _within(id_, values)
        if value is not None and within and all(count is None or count.steady for count in counts):
            steady[id_] = value
        elif values != {None}:
            unsteady.append(id_)
    if not steady:
        raise GateError("the run measured no counter that can be stored", INCONCLUSIVE)
    return Entry(
        workload=fingerprint.workload(report.run.command),
        fingerprint=fingerprint.of_report(report),
        written=today.isoformat(),
        counters=steady,
        unsteady=tuple(unsteady),
        findings=findings_of(report),
    )


def _within(id_: str, values: set[float | None]) -> bool:
    known = [value for value in values if value is not None]
    return len(known) == len(values) and max(known) - min(known) <= TOLERANCES.get(id_, 0.0) * abs(min(known))


def findings_of(report: Report) -> dict[str, int]:
    """Rule -> how many findings it has."""
    return {o.rule: len(o.findings) for o in sorted(report.outcomes, key=lambda o: o.rule) if o.findings}


def unit_of(id_: str) -> Unit:
    """The unit of a counter, which its name says."""
    return "bytes" if id_.partition(DETAIL)[0].endswith("_bytes") else "ratio" if id_ in NEUTRAL else "count"


def encode(baseline: Baseline) -> str:
    """The file's text: sorted keys, one figure per line, whole numbers without a point, LF."""
    entries = [_plain(entry) for entry in sorted(baseline.entries, key=_order)]
    document = {"schema": SCHEMA, "version": VERSION, "entries": entries}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _plain(entry: Entry) -> dict[str, Any]:
    return {
        "workload": entry.workload,
        "fingerprint": dict(sorted(entry.fingerprint.items())),
        "written": entry.written,
        "counters": {id_: _number(value) for id_, value in sorted(entry.counters.items())},
        "unsteady": sorted(entry.unsteady),
        "findings": dict(sorted((entry.findings or {}).items())),
    }


def _number(value: float) -> int | float:
    return int(value) if float(value).is_integer() else round(value, 6)


def read(path: Path) -> Baseline:
    """The file. Raises GateError: 3 where it is missing or foreign, 2 where it is damaged or newer."""
    missing = "no baseline yet; create one with `advisor gate baseline write -- train.py` and check it in"
    data = read_bytes(path, "baseline", missing)
    document = parse_json(path, data)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        text = f"{path}: not a baseline of torch-advisor (no schema {SCHEMA}); name another file with --baseline"
        raise GateError(text, INCONCLUSIVE)
    check_version(path, document.get("version"), VERSION)
    try:
        return Baseline(tuple(_entry(item) for item in document["entries"]))
    except (KeyError, TypeError, ValueError, AttributeError) as failure:
        text = f"{path}: damaged baseline ({type(failure).__name__}: {failure}); write it again"
        raise GateError(text, USAGE) from failure


def _entry(item: Any) -> Entry:
    counters = {str(id_): _checked(value) for id_, value in item["counters"].items()}
    datetime.date.fromisoformat(item["written"])
    findings = {str(rule): int(number) for rule, number in item.get("findings", {}).items()}
    where = {str(key): str(value) for key, value in item["fingerprint"].items()}
    unsteady = tuple(str(id_) for id_ in item.get("unsteady", ()))
    return Entry(str(item["workload"]), where, item["written"], counters, unsteady, findings)


def _checked(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def age_note(written: str, today: datetime.date) -> str:
    """How old an entry is, and that it is old where it is."""
    days = max((today - datetime.date.fromisoformat(written)).days, 0)
    old = "; it is old, update it with `advisor gate baseline update`" if days > OLD_AFTER_DAYS else ""
    return f"the baseline was written on {written}, {days} day{'' if days == 1 else 's'} ago{old}"


def _order(entry: Entry) -> tuple[str, str]:
    return entry.workload, json.dumps(dict(sorted(entry.fingerprint.items())))


def _apart(base: Mapping[str, str], head: Mapping[str, str]) -> list[str]:
    lacking = [f"{key} only in {'the baseline' if key in base else 'this run'}" for key in sorted({*base} ^ {*head})]
    return [*fingerprint.differences(base, head), *lacking]
