"""Two stored reports held against each other: counters exactly, times and shares for information."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from advisor.gate import budgets, counters, fingerprint, verdict
from advisor.gate.config import GateConfig
from advisor.gate.model import Flagged, Result, Row
from advisor.gate.same_places import role_of
from advisor.model import Finding, Report


def compare_reports(
    base: Report, head: Report, names: tuple[str, str], config: GateConfig, today: datetime.date
) -> Result:
    """The verdict on head against base."""
    before, after = counters.counts_of(base), counters.counts_of(head)
    rows, said = budgets.relax(counters.compare(before, after, config.tolerances()), config, today)
    new, gone = findings_changed(base, head)
    new = budgets.unexcused(new, config.suppress, today)
    limits = budgets.rows(config.budgets, head.metrics, after)
    held = verdict.of_improvement(rows) if config.improvement == "fail" else []
    decided, reason = verdict.combine(
        [
            *comparable(base, head),
            verdict.of_counters(rows, exact_steps=head.steps.source != "window"),
            *verdict.of_budgets(limits),
            *verdict.of_findings(new, config.new_findings),
            *held,
        ]
    )
    return Result(
        verdict=decided,
        reason=reason,
        base=names[0],
        head=names[1],
        counters=tuple(rows),
        budgets=tuple(limits),
        advisory=tuple(advisory_rows(base, head)),
        new_findings=tuple(new),
        gone_findings=tuple(gone),
        notes=(*notes(base, head, rows), *said),
    )


def comparable(base: Report, head: Report) -> list[verdict.Statement]:
    """What stands against comparing the two at all."""
    apart = fingerprint.differences(fingerprint.of_report(base), fingerprint.of_report(head))
    if apart:
        return [("not comparable", f"the two runs are of different environments: {'; '.join(apart)}")]
    for name, report in (("base", base), ("head", head)):
        if report.steps.count <= 0:
            return [("not comparable", f"the {name} has no steps, so nothing was measured")]
    if (base.steps.source == "window") != (head.steps.source == "window"):
        return [("not comparable", "only one of the two has steps; the other is one recorded window")]
    return []


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
    before, after = findings_by_place(base), findings_by_place(head)
    new = [flag for place, flag in after.items() if place not in before]
    gone = [flag for place, flag in before.items() if place not in after]
    return new, gone


def findings_by_place(report: Report) -> dict[tuple[str, str, str], Flagged]:
    """The findings by (rule, file name, function); of several at one place the first. The script has no name."""
    # The line is left out: it moves with every edit above it.
    role = role_of(report)
    found: dict[tuple[str, str, str], Flagged] = {}
    for outcome, finding in report.findings():
        source = finding.where[0] if finding.where else None
        place = (outcome.rule, Path(role(source.file)).name if source else "", source.function if source else "")
        found.setdefault(place, flagged(outcome.rule, finding, report.step_us))
    return found


def flagged(rule: str, finding: Finding, step_us: float | None) -> Flagged:
    """A finding in the words of the gate: its rule, its first place, its saving."""
    where = f"{finding.where[0].file}:{finding.where[0].line}" if finding.where else ""
    saving = finding.saving
    if saving is None:
        return Flagged(rule, finding.severity, finding.message, where)
    low_us = 0.0 if saving.is_bound(step_us) else saving.low_us
    return Flagged(rule, finding.severity, finding.message, where, saving.high_us, low_us)


def notes(base: Report, head: Report, rows: list[Row]) -> list[str]:
    """What a reader must know besides the verdict."""
    said = []
    if base.run.command != head.run.command:
        said.append(f"the commands differ: {' '.join(base.run.command)!r} and {' '.join(head.run.command)!r}")
    if base.steps.source != head.steps.source:
        said.append(f"steps were detected by {base.steps.source} in the base and by {head.steps.source} in the head")
    unsteady = [row for row in rows if row.status == "unsteady" and counters.is_total(row.id)]
    said.extend(f"{row.id} is informational: it differs {row.why}" for row in unsteady)
    said.extend(f"{row.id} differs: {row.base:g} and {row.head:g}" for row in rows if row.id in counters.NEUTRAL
                and row.status == "moved" and row.base is not None and row.head is not None)  # fmt: skip
    said.append(
        "times and shares are informational: the two runs were not measured concurrently; use `advisor gate --base REF`"
    )
    return said
