"""What counters, budgets, findings and step time say, each on its own, and the one verdict they add up to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from advisor.gate import counters, words
from advisor.gate.model import Flagged, Row, StepTime, Verdict
from advisor.model import Severity

if TYPE_CHECKING:
    from advisor.gate.pairs import Mode, Pair

Statement = tuple[Verdict, str]

# The worst statement wins: what cannot be compared says nothing about the rest, and one regression is enough.
_ORDER: tuple[Verdict, ...] = ("pass", "inconclusive", "regression", "not comparable")
_SEVERITIES = ("low", "medium", "high")


def combine(statements: Iterable[Statement]) -> Statement:
    """The worst verdict, with the reasons of all that say so. Without any statement nothing was measured."""
    given = list(statements)
    if not given:
        return "inconclusive", "nothing was measured"
    worst = max((verdict for verdict, _ in given), key=_ORDER.index)
    return worst, "; ".join(dict.fromkeys(reason for verdict, reason in given if verdict == worst))


def of_counters(rows: Sequence[Row], *, exact_steps: bool = True) -> Statement:
    """The verdict on compared counters. A gate that compared nothing, or lost a counter, never passes."""
    totals = [row for row in rows if counters.is_total(row.id)]
    compared = [row for row in totals if row.status in ("same", "worse", "better")]
    worse = [row for row in compared if row.gated and row.status == "worse"]
    lost = [row for row in totals if row.gated and row.status == "not measured" and row.base is not None]
    if worse and not exact_steps:
        return "inconclusive", f"{names_of(worse)} grew, but no steps were detected: the windows may differ in length"
    if worse:
        return "regression", f"{names_of(worse)} grew"
    if not compared:
        return "inconclusive", "no counter was measured on both sides, so nothing was compared"
    if lost:
        return "inconclusive", f"measured in the base but not in the head: {names_of(lost)}"
    better = [row for row in compared if row.status == "better"]
    fell = f"; {names_of(better)} fell: update the baseline to keep the gain" if better else ""
    return "pass", f"{len(compared)} counters compared, none grew{fell}"


def of_improvement(rows: Sequence[Row]) -> list[Statement]:
    """Where the configuration wants improvements held: a counter that fell asks for a new baseline."""
    better = [row for row in rows if row.gated and row.status == "better"]
    text = f"{names_of(better)} fell, and improvements must be kept: run `advisor gate baseline update`"
    return [("regression", text)] if better else []


def of_budgets(rows: Sequence[Row]) -> list[Statement]:
    """Hard limits that were passed, or that could not be checked."""
    hard = [row for row in rows if row.gated]
    over = [f"{row.id} is {words.value(row.head, row.unit)}, {row.limit}" for row in hard if row.status == "worse"]
    said: list[Statement] = [("regression", f"over budget: {'; '.join(over)}")] if over else []
    unknown = [row for row in hard if row.status == "not measured"]
    said += [("inconclusive", f"{row.id} has a budget and was not measured: {row.why}") for row in unknown]
    return said or ([("pass", f"{len(hard)} budgets met")] if hard else [])


def of_findings(flags: Sequence[Flagged], least: Severity | None) -> list[Statement]:
    """New findings of at least this severity; None lets them only inform."""
    if least is None:
        return []
    grave = [flag.rule for flag in flags if _SEVERITIES.index(flag.severity) >= _SEVERITIES.index(least)]
    return [("regression", f"new findings of severity {least} or more: {', '.join(grave)}")] if grave else []


def of_step_time(result: StepTime) -> Statement:
    """The decision of the sequential test in one sentence."""
    said = words.step_time(result)
    if result.decision == "regression":
        again = ", seen again in a second series" if result.confirmed else ""
        return "regression", f"{said}: beyond the margin of {result.margin:.1%}{again}"
    if result.decision == "pass":
        faster = "; it is faster by the same rule" if result.high < 0 and result.change < -result.margin else ""
        return "pass", f"{said}: {result.tolerance:.1%} slower is excluded{faster}"
    return (
        result.decision,
        f"{said}: the smallest change it can find is {result.detectable:.1%}{_how_to_decide(result)}",
    )


def of_clocks(pairs: Sequence[Pair], mode: Mode) -> list[Statement]:
    """Pairs during which heat or power held a clock down.

    Sides that take turns of milliseconds share the slow clock, and their ratio stands. Where each side runs alone, one
    may have had the slow clock for itself.
    """
    held = sum(pair.held for pair in pairs)
    if not held or mode == "lockstep":
        return []
    text = (
        f"thermal or power throttling reduced a clock during {held} of {len(pairs)} pairs, and sides did not alternate"
    )
    return [("inconclusive", text)]


def _how_to_decide(result: StepTime) -> str:
    if result.further_pairs:
        return f"; about {result.further_pairs} more pairs would decide"
    return f"; no practical number of pairs would decide {result.tolerance:.1%} here: use a quieter machine"


def names_of(rows: Sequence[Row], most: int = 4) -> str:
    """The ids of rows in one phrase."""
    names = [row.id for row in rows]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
