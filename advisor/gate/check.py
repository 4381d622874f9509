"""`advisor gate check`: the counters of one run against the checked-in baseline."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path

from advisor.errors import FAILED
from advisor.gate import baseline, budgets, counters, fingerprint, verdict
from advisor.gate.baseline import Baseline, Entry
from advisor.gate.config import GateConfig
from advisor.gate.files import GateError
from advisor.gate.model import Flagged, Result, Row
from advisor.gate.stored import flagged
from advisor.model import Report


def check(report: Report, held: Baseline, config: GateConfig, today: datetime.date, names: tuple[str, str]) -> Result:
    """The verdict on a run. names: the baseline's file and the run, in words.

    Raises GateError (4) for a run without steps: a measured script that never steps has failed.
    """
    if report.steps.count <= 0 or report.steps.source == "window":
        raise GateError(f"{names[1]}: no training steps were found in this run, so nothing was measured", FAILED)
    environment, workload = fingerprint.of_report(report), fingerprint.workload(report.run.command)
    entry = held.find(workload, environment)
    if entry is None:
        reason = held.why_none(workload, environment)
        new = baseline.encode(held.put(baseline.entry_of([report], today)))
        return Result("not comparable", reason, *names, new_baseline=new)
    return _compare(report, held, entry, config, today, names)


def _compare(
    report: Report, held: Baseline, entry: Entry, config: GateConfig, today: datetime.date, names: tuple[str, str]
) -> Result:
    after = counters.counts_of(report)
    rows, said = budgets.relax(counters.compare(entry.counts(), after, config.tolerances()), config, today)
    new, gone = new_findings(report, entry.findings or {})
    new = budgets.unexcused(new, config.suppress, today)
    limits = budgets.rows(config.budgets, report.metrics, after)
    decided, reason = verdict.combine(
        [
            verdict.of_counters(rows),
            *verdict.of_budgets(limits),
            *verdict.of_findings(new, config.new_findings),
            *(verdict.of_improvement(rows) if config.improvement == "fail" else []),
        ]
    )
    changed = any(row.status in ("worse", "better", "moved") for row in rows)
    return Result(
        verdict=decided,
        reason=reason,
        base=names[0],
        head=names[1],
        counters=tuple(rows),
        budgets=tuple(limits),
        new_findings=tuple(new),
        gone_findings=tuple(gone),
        notes=(*said, *_notes(rows), baseline.age_note(entry.written, today)),
        new_baseline=baseline.encode(held.put(baseline.entry_of([report], today))) if changed else "",
    )


def _notes(rows: Sequence[Row]) -> list[str]:
    unsteady = [row for row in rows if row.status == "unsteady" and counters.is_total(row.id)]
    unheld = [row for row in rows if row.status == "not measured" and row.base is None and counters.is_total(row.id)]
    said = [f"{row.id} is informational: it differs {row.why}" for row in unsteady]
    if unheld:
        said.append(f"not in the baseline yet: {verdict.names_of(unheld)}")
    return said


def new_findings(report: Report, held: Mapping[str, int]) -> tuple[list[Flagged], list[Flagged]]:
    """Findings by rule that the baseline did not have, and rules of the baseline that no longer fire."""
    new = []
    for outcome in report.outcomes:
        beyond = held.get(outcome.rule, 0)
        new += [flagged(outcome.rule, finding, report.step_us) for finding in outcome.findings[beyond:]]
    firing = {outcome.rule for outcome in report.outcomes if outcome.findings}
    gone = [Flagged(rule, "low", "no longer found") for rule in sorted(held) if rule not in firing]
    return new, gone


def baseline_path(option: Path | None, config: GateConfig) -> Path:
    """The baseline file: the option, else the configuration's."""
    return option if option is not None else Path(config.baseline)
