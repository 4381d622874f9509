"""One clock for all ranks of a job: how far each rank's times are shifted, and by what that was told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.ranks import matching
from advisor.ranks.rank_facts import RankFacts

# Clocks of one machine agree; ranks whose steps lie further apart than they are long cannot share one.
_ALONE = (0,)


@dataclass(frozen=True, slots=True)
class CommonClock:
    """Shifts onto the clock of the first rank.

    shift_ns      taken from every time of that rank
    uncertain_us  how far clocks may still be apart; None where that is not known
    how           a sentence: what the shifts were told by
    """

    shift_ns: tuple[int, ...]
    uncertain_us: float | None
    how: str


def common_clock(facts: Sequence[RankFacts]) -> CommonClock:
    """The clock of these ranks: by the ends of matched collectives, else as recorded, else by their first step."""
    if len(facts) < 2:
        return CommonClock(_ALONE * len(facts), 0.0, "one rank: its own clock")
    labels = _shared(facts)
    found = matching.offsets(matching.meetings(facts, labels)[0], len(facts)) if labels else None
    if found is not None:
        how = "clocks are aligned by the ends of collectives, which all ranks leave at the same time"
        return CommonClock(tuple(found[0].tolist()), found[1] / 1e3, how)
    zeros = (0,) * len(facts)
    if max(int(one.starts_ns[0]) for one in facts) < min(int(one.starts_ns[-1]) + _length(one) for one in facts):
        how = "clocks are used as recorded: too few collectives could be matched across ranks to align them"
        return CommonClock(zeros, None, how)
    starts = [int(one.starts_ns[0]) for one in facts]
    how = "the clocks cannot be aligned: the first steps of all ranks are drawn at the same time"
    return CommonClock(tuple(start - starts[0] for start in starts), None, how)


def _shared(facts: Sequence[RankFacts]) -> tuple[str, ...]:
    """Names of the steps that all ranks have, in the order of the first."""
    shared = set(facts[0].labels).intersection(*(one.labels for one in facts[1:]))
    return tuple(label for label in facts[0].labels if label in shared)


def _length(one: RankFacts) -> int:
    return int(one.step_us * 1e3)
