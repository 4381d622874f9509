"""What all accepted fixes give back together: never the sum of the single savings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from advisor.model import Basis, Finding, Joint, Saving


def joint(
    findings: Sequence[tuple[str, Finding]],
    parts_us: Mapping[str, float],
    step_us: float,
    replayed: Saving | None = None,
) -> Joint | None:
    """The range of the joint saving on the scale of `step_us`, or None where nothing can be computed.

    findings: pairs of rule id and finding. Each finding claims parts of the breakdown (`parts_us`, disjoint pieces of
    the step). Fixes of different rules that share a part shrink the same time one after the other: what each leaves is
    multiplied. Findings of one rule are different places, so they add, up to what their parts hold. Groups that share
    nothing shrink different pieces of the step, so their upper bounds add. The lower bound stays that of the best
    single fix, because shortening one piece may uncover another. These are bounds, not a replay: `basis` says modelled.
    `replayed` is what all findings with a replayed saving give back at once: it takes their place, and is the whole
    answer where there are no others.
    """
    fixes = [_Fix(rule, f.saving.low_us, f.saving.high_us, f.claims) for rule, f in findings if f.saving]
    if not fixes:
        return None
    basis: Basis = "modelled"
    if replayed is not None:
        alone = [f for _, f in findings if f.saving and f.saving.basis == "replayed"]
        fixes = [
            _Fix(rule, f.saving.low_us, f.saving.high_us, f.claims)
            for rule, f in findings
            if f.saving and f.saving.basis != "replayed"
        ]
        basis = "modelled" if fixes else "replayed"
        # What all of them give back is no less than what the best of them does, at either end.
        sure_us = min(max((f.saving.low_us for f in alone if f.saving), default=0.0), replayed.high_us)
        most_us = max(replayed.high_us, *(f.saving.high_us for f in alone if f.saving), 0.0)
        claims = tuple(dict.fromkeys(claim for finding in alone for claim in finding.claims))
        fixes.append(_Fix("", sure_us, most_us, claims))
    high = min(sum(_group_high(group, parts_us, step_us) for group in _groups(fixes)), step_us)
    low = min(max(fix.low_us for fix in fixes), high)
    return Joint(low_us=low, high_us=high, step_us_after=step_us - (low + high) / 2, basis=basis)


class _Fix(Struct, frozen=True):
    rule: str
    low_us: float
    high_us: float
    claims: tuple[str, ...]


def _groups(fixes: Sequence[_Fix]) -> list[list[_Fix]]:
    """Fixes joined where their claims overlap; one without claims competes with everything."""
    groups: list[list[_Fix]] = []
    for fix in fixes:
        touching = [group for group in groups if any(_compete(fix, other) for other in group)]
        groups = [group for group in groups if group not in touching]
        groups.append([fix, *(other for group in touching for other in group)])
    return groups


def _compete(one: _Fix, other: _Fix) -> bool:
    return not one.claims or not other.claims or bool(set(one.claims) & set(other.claims))


def _group_high(group: Sequence[_Fix], parts_us: Mapping[str, float], step_us: float) -> float:
    """The most that fixes of the same time can give back together."""
    if all(fix.claims for fix in group):
        held = sum(parts_us.get(claim, 0.0) for claim in dict.fromkeys(claim for fix in group for claim in fix.claims))
    else:
        held = step_us
    held = max(held, *(fix.high_us for fix in group), 1e-9)
    left = held
    for rule in dict.fromkeys(fix.rule for fix in group):  # in order: products of floats depend on it
        left *= 1 - min(sum(fix.high_us for fix in group if fix.rule == rule), held) / held
    return held - left
