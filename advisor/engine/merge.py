"""Many ranks, one answer: equal findings become one finding that names its ranks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from advisor.model import Finding, Outcome, finding_order


def brought_to(step_us: float, of_rank: tuple[Outcome, ...], rank_step_us: float) -> tuple[Outcome, ...]:
    """A rank's outcomes on the scale of another's step: its savings as the same shares of that."""
    if not rank_step_us or rank_step_us == step_us:
        return of_rank
    factor = step_us / rank_step_us

    def scaled(finding: Finding) -> Finding:
        if finding.run_us is not None:
            return finding  # by the clock, whatever the step took
        saving = finding.saving
        measured_us = None if finding.measured_us is None else finding.measured_us * factor
        if saving is not None:
            width_us = {why: us * factor for why, us in saving.width_us.items()}
            low_us, high_us = saving.low_us * factor, saving.high_us * factor
            saving = replace(saving, low_us=low_us, high_us=high_us, width_us=width_us)
        return replace(finding, saving=saving, measured_us=measured_us)

    return tuple(replace(one, findings=tuple(map(scaled, one.findings))) for one in of_rank)


def merged_outcomes(per_rank: Sequence[tuple[Outcome, ...]], reference: tuple[Outcome, ...]) -> list[Outcome]:
    """One outcome per rule: equal findings of several ranks become one that names the ranks."""
    if len(per_rank) == 1:
        return list(reference)
    return [_one_rule([each[i] for each in per_rank], reference[i]) for i in range(len(reference))]


def _one_rule(ranks: list[Outcome], reference: Outcome) -> Outcome:
    order = [reference, *(outcome for outcome in ranks if outcome is not reference)]
    merged: list[Finding] = []
    for outcome in order:
        merged = _with_rank(merged, outcome.findings)
    if merged:
        findings = sorted(merged, key=lambda f: finding_order(reference.rule, f))
        return replace(reference, status="found", findings=tuple(findings), reason="")
    errors = [outcome for outcome in order if outcome.status == "error"]
    return errors[0] if errors else reference


def _with_rank(merged: list[Finding], findings: Sequence[Finding]) -> list[Finding]:
    """The findings with those of one more rank, each of which adds its rank to the one that says the same, if any.

    The reference rank comes first: its numbers stand. What says the same with other numbers, at the same first line,
    is the same where nothing says it in the same words; and so is what says it without a line, as ranks do whose lines
    were not recorded.
    """
    found, free, left = list(merged), set(range(len(merged))), list(findings)
    without_lines = any(not any(one.where for one in said) for said in (merged, findings))
    for same in (_exactly, _nearly, *((_without_a_line,) if without_lines else ())):
        for finding in tuple(left):
            at = next((at for at in sorted(free) if same(found[at], finding)), None)
            if at is not None:
                ranks = tuple(sorted({*found[at].ranks, *finding.ranks}))
                found[at] = replace(found[at], ranks=ranks, where=found[at].where or finding.where)
                free.discard(at)
                left.remove(finding)
    return found + left


def _exactly(one: Finding, other: Finding) -> bool:
    titles = [each.fix.title if each.fix else "" for each in (one, other)]
    return (one.where, titles[0], one.claims) == (other.where, titles[1], other.claims)


def _nearly(one: Finding, other: Finding) -> bool:
    return one.where[:1] == other.where[:1] and _advice(one) == _advice(other)


def _without_a_line(one: Finding, other: Finding) -> bool:
    return one.fix is not None and (_advice(one), one.claims) == (_advice(other), other.claims)


def _advice(finding: Finding) -> str:
    """The title of the fix, whatever numbers it has."""
    return re.sub(r"[\d.,]+", "#", finding.fix.title) if finding.fix else ""
