"""Ranges of savings as wide as predictions were off when they were checked.

A rule's range goes from the least to the most that its change may save. What was measured lies near its middle, however
far apart these are, and beside it where they are close: 100 scripts on CPUs told how far (`docs/savings.md`). The odds
of a saving are the time of what goes against that of what stays; they were off by a factor, so that a range never
reaches nothing, or the whole step.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from advisor.analyses.base.repeats import widened
from advisor.constants import constant
from advisor.model import Joint, Outcome, RankSummary, Saving
from advisor.model.savings import NOTHING_SHARE

# What goes takes more with it than its own time: caches, memory that is mapped again.
_ABOVE = math.log(constant("predictions.odds_above").value)
# Four of five measured savings lie within this factor of the predicted odds, where the change leaves nothing open.
_FACTOR = math.log(constant("predictions.odds_factor").value)
# What half the width that the change leaves open adds to that, as a share of the middle.
_OPEN = constant("predictions.open_weight").value
# All of the step has no odds: what stays is at least what counts as nothing.
_MOST = 1 - NOTHING_SHARE
_HOW = "{how}; ends as far out as four of five such savings were from their predictions when measured"


def are_checked(rank: RankSummary) -> bool:
    """Whether savings of such steps were compared with measured ones: on CPUs, of steps without the profiler."""
    timed, busy = rank.steps.unprofiled_us, rank.metrics.get("device_busy_share")
    return (timed.median or timed.mean) is not None and (busy is None or busy.value is None)


def of_outcome(outcome: Outcome, step_us: float, repeats: float | None, checked: bool) -> Outcome:
    """The outcome with the ranges of its findings as wide as they turned out to be; arguments as of `settled`."""
    findings = (
        replace(one, saving=one.saving and settled(one.saving, one.run_us or step_us, repeats, checked))
        for one in outcome.findings
    )
    return replace(outcome, findings=tuple(findings))


def of_joint(joint: Joint | None, step_us: float, repeats: float | None, checked: bool) -> Joint | None:
    """What all fixes give back together, as wide as each of them."""
    if joint is None:
        return None
    wide = settled(Saving(joint.low_us, joint.high_us, joint.basis, ""), step_us, repeats, checked)
    after = step_us - (wide.low_us + wide.high_us) / 2
    return replace(joint, low_us=wide.low_us, high_us=wide.high_us, step_us_after=after)


def settled(saving: Saving, whole_us: float, repeats: float | None, checked: bool) -> Saving:
    """The saving as predictions of its kind turned out.

    whole_us: the step, or the run, that it is a part of;  checked: as `are_checked` says
    Others, and upper bounds, are as wide as steps differ. An end may lie beyond the time that the finding claims: what
    goes takes more with it than that.
    """
    if not checked or whole_us <= 0 or saving.is_bound(whole_us):
        return widened(saving, whole_us, repeats)
    middle_us, half_us = (saving.low_us + saving.high_us) / 2, (saving.high_us - saving.low_us) / 2
    share, left_open = min(middle_us / whole_us, _MOST), (_OPEN * half_us / middle_us) ** 2
    off = _FACTOR * math.sqrt(1 + left_open)
    odds = share / (1 - share)
    low_us, high_us = (whole_us * (there := odds * math.exp(_ABOVE + way)) / (1 + there) for way in (-off, off))
    # Either cause has the part of the width that it has of the variance.
    width_us, known = high_us - low_us, left_open / (1 + left_open)
    scaled = known * width_us / (2 * half_us) if half_us else 0.0
    parts = {why: us * scaled for why, us in saving.width_us.items()}
    parts["predictions"] = (1 - known) * width_us
    return replace(saving, low_us=low_us, high_us=high_us, how=_HOW.format(how=saving.how), width_us=parts)
