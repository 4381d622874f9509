"""Two stored reports held against each other: counters exactly, times and shares for information."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from advisor.errors import INCONCLUSIVE, USAGE, AdvisorError
from advisor.gate import counters, fingerprint
from advisor.gate.model import Flagged, Result, Row, Verdict
from advisor.model import SCHEMA, VERSION, Finding, Report

# A baseline older than this is named as old: by then torch, drivers and data have usually moved on.
OLD_AFTER_DAYS = 90


class GateError(AdvisorError):
    """An obstacle of the gate with its own exit status."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


def read_report(path: Path, *, baseline: bool) -> Report:
    """A stored report (a report.json, or a folder that holds one).

    Raises GateError: a missing or foreign baseline is *no baseline* (3); everything else is a usage error (2).
    """
    file = path / "report.json" if path.is_dir() else path
    role, absent = ("baseline", INCONCLUSIVE) if baseline else ("head report", USAGE)
    try:
        data = file.read_bytes()
    except FileNotFoundError as failure:
        text = f"{file}: no such {role}; make one with `advisor run --output DIR train.py` or `advisor analyze TRACE`"
        raise GateError(text, absent) from failure
    except OSError as failure:
        raise GateError(f"{file}: cannot read the {role} ({failure.strerror})", USAGE) from failure
    document = parse_json(file, data)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise GateError(f"{file}: not a report of torch-advisor (no schema {SCHEMA}); give a report.json", absent)
    check_version(file, document.get("version"), VERSION)
    try:
        return msgspec.convert(document, Report)
    except msgspec.ValidationError as failure:
        raise GateError(f"{file}: damaged report ({failure}); make it again", USAGE) from failure


def parse_json(path: Path, data: bytes) -> Any:
    """The document in `data`. Raises GateError (2) where it is no JSON."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as failure:
        what = "an empty file" if not data.strip() else f"damaged, not JSON ({failure})"
        raise GateError(f"{path}: {what}; make it again", USAGE) from failure


def check_version(path: Path, version: object, known: int) -> None:
    """Raises GateError (2) for a version that this program does not read."""
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise GateError(f"{path}: damaged, its version is {version!r}; make it again", USAGE)
    if version > known:
        text = (
            f"{path}: written by a newer torch-advisor (version {version}, this one reads {known}); upgrade to read it"
        )
        raise GateError(text, USAGE)


def compare_reports(
    base: Report, head: Report, names: tuple[str, str], tolerances: Mapping[str, float] | None = None
) -> Result:
    """The verdict on head against base."""
    rows = counters.compare(counters.counts_of(base), counters.counts_of(head), tolerances or {})
    new, gone = findings_changed(base, head)
    verdict, reason = judge(base, head, rows)
    return Result(
        verdict=verdict,
        reason=reason,
        base=names[0],
        head=names[1],
        counters=tuple(rows),
        advisory=tuple(advisory_rows(base, head)),
        new_findings=tuple(new),
        gone_findings=tuple(gone),
        notes=tuple(notes(base, head, rows)),
    )


def judge(base: Report, head: Report, rows: list[Row]) -> tuple[Verdict, str]:
    """The verdict that counters allow, and its reason: what cannot be compared first, then what got worse."""
    apart = fingerprint.differences(fingerprint.of_report(base), fingerprint.of_report(head))
    if apart:
        return "not comparable", f"the two runs are of different environments: {'; '.join(apart)}"
    for name, report in (("base", base), ("head", head)):
        if report.steps.count <= 0:
            return "inconclusive", f"the {name} holds no steps, so nothing was measured"
    if (base.steps.source == "window") != (head.steps.source == "window"):
        return "not comparable", "only one of the two has steps; the other is one recorded window"
    return judge_rows(rows, exact_steps=base.steps.source != "window")


def judge_rows(rows: list[Row], *, exact_steps: bool = True) -> tuple[Verdict, str]:
    """The verdict on compared counters. A gate that compared nothing, or lost a counter, never passes."""
    gated = [row for row in rows if row.gated]
    compared = [row for row in gated if row.status in ("same", "worse", "better")]
    lost = [row for row in gated if row.status == "not measured" and row.base is not None]
    worse = [row for row in compared if row.status == "worse"]
    if worse and not exact_steps:
        return "inconclusive", f"{names_of(worse)} grew, but no steps were told apart: the windows may differ in length"
    if worse:
        return "regression", f"{names_of(worse)} grew"
    if not compared:
        return "inconclusive", "no counter was measured on both sides, so nothing was compared"
    if lost:
        return (
            "inconclusive",
            f"{names_of(lost)} of the base {'is' if len(lost) == 1 else 'are'} not measured in the head",
        )
    better = [row for row in compared if row.status == "better"]
    fell = f"; {names_of(better)} fell: refresh the baseline to hold the gain" if better else ""
    return "pass", f"{len(compared)} counters compared, none grew{fell}"


def names_of(rows: list[Row], most: int = 4) -> str:
    """The ids of rows in one phrase."""
    names = [row.id for row in rows]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def advisory_rows(base: Report, head: Report) -> list[Row]:
    """Times and shares of both sides: they inform, and never decide, because they were not measured side by side."""
    rows = []
    for id_ in sorted({*base.metrics, *head.metrics}):
        known = head.metrics.get(id_) or base.metrics[id_]
        if id_ in counters.TOLERANCES or id_ in counters.NEUTRAL:
            continue
        before, after = (_measured(report, id_) for report in (base, head))
        if before is not None or after is not None:
            lost = before is None or after is None
            rows.append(Row(id_, known.unit, before, after, "not measured" if lost else _moved(before, after)))
    return rows


def _moved(before: float | None, after: float | None) -> Any:
    return "same" if before == after else "moved"


def _measured(report: Report, id_: str) -> float | None:
    metric = report.metrics.get(id_)
    return metric.value if metric and metric.status == "measured" else None


def findings_changed(base: Report, head: Report) -> tuple[list[Flagged], list[Flagged]]:
    """Findings that only the head has, and those that only the base had; told apart by rule and place."""
    before, after = _by_place(base), _by_place(head)
    new = [flag for place, flag in after.items() if place not in before]
    gone = [flag for place, flag in before.items() if place not in after]
    return new, gone


def _by_place(report: Report) -> dict[tuple[str, str, str], Flagged]:
    # The line is left out: it moves with every edit above it.
    found: dict[tuple[str, str, str], Flagged] = {}
    for outcome, finding in report.findings():
        source = finding.where[0] if finding.where else None
        place = (outcome.rule, Path(source.file).name if source else "", source.function if source else "")
        found.setdefault(place, _flagged(outcome.rule, finding))
    return found


def _flagged(rule: str, finding: Finding) -> Flagged:
    where = f"{finding.where[0].file}:{finding.where[0].line}" if finding.where else ""
    return Flagged(rule, finding.severity, finding.message, where, finding.saving.high_us if finding.saving else None)


def notes(base: Report, head: Report, rows: list[Row]) -> list[str]:
    """What a reader must know besides the verdict."""
    said = []
    if base.run.command != head.run.command:
        said.append(f"the commands differ: {' '.join(base.run.command)!r} and {' '.join(head.run.command)!r}")
    if base.steps.source != head.steps.source:
        said.append(f"steps were told apart by {base.steps.source} in the base and by {head.steps.source} in the head")
    said.extend(f"{row.id} informs only: it differs {row.why}" for row in rows if row.status == "unsteady")
    said.extend(f"{row.id} differs: {row.base:g} and {row.head:g}" for row in rows if row.id in counters.NEUTRAL
                and row.status == "moved" and row.base is not None and row.head is not None)  # fmt: skip
    said.append(
        "times and shares inform only: the two runs were not measured side by side; use `advisor gate --base REF`"
    )
    return said


def age_note(written: str, today: datetime.date) -> str:
    """How old a baseline is, from its date (ISO); empty where it has none."""
    try:
        days = (today - datetime.date.fromisoformat(written[:10])).days
    except ValueError:
        return ""
    old = "; refresh it with `advisor gate baseline update`" if days > OLD_AFTER_DAYS else ""
    return f"the baseline is {days} day{'s' if days != 1 else ''} old{old}"
