"""What all accepted fixes give back together: never the sum of the single savings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from advisor.model import Basis, Finding, Joint, Saving


def joint(
    findings: Sequence[Finding], parts_us: Mapping[str, float], step_us: float, replayed: Saving | None = None
) -> Joint | None:
    """The range of the joint saving on the scale of `step_us`, or None where nothing can be computed.

    Each finding claims parts of the breakdown (`parts_us`, disjoint pieces of the step). Findings that share a part
    compete for it: together they give no more than their parts hold (or than the largest of them, where it claims
    more). Groups that share nothing shrink different pieces of the step, so their upper bounds add; the lower bound
    stays that of the best single fix, because shortening one piece may uncover another. These are bounds, not a
    replay: `basis` says modelled. `replayed` is what all findings with a replayed saving give back at once: it takes
    their place, and is the whole answer where there are no others.
    """
    with_saving = [finding for finding in findings if finding.saving is not None]
    if not with_saving:
        return None
    basis: Basis = "modelled"
    if replayed is not None:
        alone = [finding for finding in with_saving if finding.saving and finding.saving.basis == "replayed"]
        others = [finding for finding in with_saving if finding.saving and finding.saving.basis != "replayed"]
        claims = tuple(dict.fromkeys(claim for finding in alone for claim in finding.claims))
        # What all of them give back cannot be less than what the best of them is sure to give back, nor surer.
        sure_us = min(max((f.saving.low_us for f in alone if f.saving), default=0.0), replayed.high_us)
        with_saving = [
            *others,
            Finding("replayed together", saving=replace(replayed, low_us=sure_us), claims=claims),
        ]
        basis = "modelled" if others else "replayed"
    low = max(finding.saving.low_us for finding in with_saving if finding.saving)
    high = min(sum(_group_high(group, parts_us) for group in _groups(with_saving)), step_us)
    low = min(low, high)
    return Joint(low_us=low, high_us=high, step_us_after=step_us - (low + high) / 2, basis=basis)


def _groups(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Findings joined where their claims overlap; a finding without claims competes with everything."""
    groups: list[list[Finding]] = []
    for finding in findings:
        touching = [group for group in groups if any(_compete(finding, other) for other in group)]
        groups = [group for group in groups if group not in touching]
        groups.append([finding, *(other for group in touching for other in group)])
    return groups


def _compete(one: Finding, other: Finding) -> bool:
    return not one.claims or not other.claims or bool(set(one.claims) & set(other.claims))


def _group_high(group: Sequence[Finding], parts_us: Mapping[str, float]) -> float:
    best = max(finding.saving.high_us for finding in group if finding.saving)
    claims = {claim for finding in group for claim in finding.claims}
    return max(best, min(sum(f.saving.high_us for f in group if f.saving), sum(parts_us.get(c, 0.0) for c in claims)))
