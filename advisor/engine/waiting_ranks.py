"""What one rank gains, the next collective takes: savings that not all ranks of a job are known to share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from advisor.model import Finding, Outcome, Saving
from advisor.ranks.deduct_waiting import WAITING

_SOME = "low: nothing, since only {some} of {all} ranks show it: a rank that gains alone waits in the next collective"
_ALONE = "low: nothing, if the other ranks do not gain as much: a rank that gains alone waits in the next collective"


def bounded(outcomes: Sequence[Outcome], here: int, world_size: int, meet: bool) -> Iterator[Outcome]:
    """The outcomes with savings from nothing on, where it is not known that every rank has them.

    here: ranks with a trace, of world_size in the job;  meet: they exchange something in each step, and so wait for
    the slowest of them. What shortens communication itself shortens it for all.
    """
    if not meet or world_size < 2:
        yield from outcomes
        return
    for outcome in outcomes:
        yield replace(outcome, findings=tuple(_bounded(one, here, world_size) for one in outcome.findings))


def _bounded(finding: Finding, here: int, world_size: int) -> Finding:
    saving = finding.saving
    if saving is None or (finding.claims and WAITING.issuperset(finding.claims)):
        return finding
    if len(finding.ranks) < here:
        return replace(finding, saving=_from_nothing(saving, _SOME.format(some=len(finding.ranks), all=here)))
    return replace(finding, saving=_from_nothing(saving, _ALONE)) if here < world_size else finding


def _from_nothing(saving: Saving, why: str) -> Saving:
    kept = [part for part in saving.how.split("; ") if not part.startswith("low:")]
    return replace(saving, low_us=0.0, how="; ".join((*kept, why)))
