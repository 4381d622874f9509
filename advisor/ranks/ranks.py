"""All ranks of one job side by side: who waits for whom, and what each has to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from msgspec import Struct

from advisor.analyses.base.scale import Scale
from advisor.computed import Missing
from advisor.model import Source
from advisor.ranks import matching
from advisor.ranks.matching import Meetings
from advisor.ranks.point_to_point import Passes, passes
from advisor.ranks.rank_facts import RankFacts
from advisor.trace.events import Floats, Ints
from advisor.trace.intervals import Intervals, intersect, overlap_of_each, union


class Waiting(Struct, frozen=True, eq=False):
    """Time that ranks wait in a collective for another rank to join, by aligned clocks.

    us           (ranks, steps) exposed: while the rank does nothing else
    late_us      one array for each of the job's `meetings`, shaped like its times: how much later than the first rank
                 each rank joined (0 for the first)
    uncertain_us remaining difference between the ranks' clocks
    """

    us: Floats
    late_us: tuple[Floats, ...]
    uncertain_us: float


class Ranks(Struct, frozen=True, eq=False):
    """The ranks of a job, at least two. Arrays have a row for each rank, in the order of `ranks`; times are profiled.

    ranks      numbers of the ranks;  facts: what is known about each
    world_size ranks of the job, including those without a trace
    reference  position of the reference rank: that of median step time
    steps      names of the steps that all of them have, in order
    parts_us   breakdown id -> (ranks, steps) µs
    flops      (ranks, steps) FLOPs of each step; None if shapes were not recorded on all ranks
    meetings   matched collectives;  unmatched: steps whose collectives could not be matched
    waiting    None if the clocks cannot be aligned; `why` says why
    passes     sends matched with their receives, by pair of ranks;  unpassed: pairs that could not be matched
    """

    missing: ClassVar[str] = "only one rank has a trace; pass the traces of all ranks to compare them"

    ranks: tuple[int, ...]
    facts: tuple[RankFacts, ...]
    world_size: int
    reference: int
    steps: tuple[str, ...]
    parts_us: dict[str, Floats]
    flops: Floats | None
    meetings: tuple[Meetings, ...]
    unmatched: int
    waiting: Waiting | None
    why: str = ""
    passes: tuple[Passes, ...] = ()
    unpassed: int = 0

    @property
    def whole(self) -> bool:
        """Whether every rank of the job has a trace."""
        return len(self.ranks) >= self.world_size

    @property
    def step_us(self) -> float:
        """A profiled step of the reference rank, µs."""
        return self.facts[self.reference].step_us

    @property
    def scale(self) -> Scale:
        """From profiled time to time of un-profiled steps, for the reference rank."""
        return self.facts[self.reference].scale

    @property
    def on_device(self) -> bool:
        """Whether the ranks compute on devices."""
        return self.facts[self.reference].on_device

    @property
    def waits_us(self) -> float:
        """Time that the reference rank waits for others per un-profiled step, µs; 0 if not known."""
        if self.waiting is None or not self.waiting.us.shape[1]:
            return 0.0
        return self.facts[self.reference].scale.scaled(float(self.waiting.us[self.reference].mean()))

    def known_waiting(self) -> Waiting:
        """The waiting. Raises Missing with the reason if it is not known."""
        if self.waiting is None:
            raise Missing(self.why)
        return self.waiting

    def more_us(self, position: int) -> dict[str, float]:
        """Breakdown id -> how much longer this part is on a rank than the median of the others, µs per step."""
        others = [other for other in range(len(self.ranks)) if other != position]
        mean = {part: us.mean(axis=1) for part, us in self.parts_us.items()}
        return {part: float(us[position] - np.median(us[others])) for part, us in mean.items()}

    def lines_of(self, position: int, part: str) -> tuple[Source, ...]:
        """Lines in which a rank spends more of a part than the others do, the largest difference first."""

        def spent(rank: int) -> dict[tuple[str, int], float]:
            return {one.source.place: one.us for one in self.facts[rank].lines if one.part == part}

        others = [spent(other) for other in range(len(self.ranks)) if other != position]
        sources = {one.source.place: one.source for one in self.facts[position].lines}
        more = {
            at: us - float(np.median([other.get(at, 0.0) for other in others])) for at, us in spent(position).items()
        }
        ordered = sorted((at for at, us in more.items() if us > 0), key=lambda at: -more[at])
        return tuple(sources[at] for at in ordered)

    @classmethod
    def of(cls, ranks: Sequence[int], facts: Sequence[RankFacts], reference: int) -> Ranks:
        """The job of these ranks (one entry of `facts` for each). Raises Missing for fewer than two."""
        if len(ranks) < 2:
            raise Missing(cls.missing)
        labels = _common(facts)
        found, unmatched = matching.meetings(facts, labels)
        names = dict.fromkeys(part for one in facts for part in one.parts_us)
        parts = {part: np.stack([_chosen(one, part, labels) for one in facts]) for part in names}
        work = [_work(one, labels) for one in facts]
        waiting, why = _waiting(facts, found, labels)
        passed, unpassed = passes(facts, ranks)
        return cls(
            ranks=tuple(ranks),
            facts=tuple(facts),
            world_size=max([len(ranks), *(one.world_size or 0 for one in facts)]),
            reference=reference,
            steps=labels,
            parts_us=parts,
            flops=np.stack([one for one in work if one is not None]) if all(w is not None for w in work) else None,
            meetings=found,
            unmatched=unmatched,
            waiting=waiting,
            why=why,
            passes=passed,
            unpassed=unpassed,
        )


def _common(facts: Sequence[RankFacts]) -> tuple[str, ...]:
    """Steps that all ranks have, in the order of the first."""
    shared = set(facts[0].labels).intersection(*(one.labels for one in facts[1:]))
    return tuple(label for label in facts[0].labels if label in shared)


def _places(one: RankFacts, labels: tuple[str, ...]) -> Ints:
    """Where each common step lies among the steps of a rank."""
    at = {label: index for index, label in enumerate(one.labels)}
    return np.array([at[label] for label in labels], np.int64)


def _chosen(one: RankFacts, part: str, labels: tuple[str, ...]) -> Floats:
    """A part's µs in each common step; zero for a part that this rank's breakdown has not."""
    known = one.parts_us.get(part)
    return known[_places(one, labels)] if known is not None else np.zeros(len(labels))


def _work(one: RankFacts, labels: tuple[str, ...]) -> Floats | None:
    return one.flops[_places(one, labels)] if one.flops is not None else None


def _waiting(
    facts: Sequence[RankFacts], found: Sequence[Meetings], labels: tuple[str, ...]
) -> tuple[Waiting | None, str]:
    """Who waited in which step, or why that is not known."""
    if len({one.on_device for one in facts}) > 1:
        return None, "some ranks have device events and others do not; profile all ranks with the same activities"
    if not labels:
        return None, "the ranks have no step in common; profile the same steps on all ranks"
    if not found:
        return None, "no collective could be matched across ranks; pass traces of the same steps from all ranks"
    aligned = matching.offsets(found, len(facts)) or matching.as_recorded(found, len(facts))
    if aligned is None:
        return None, "too few collectives to align the clocks of the ranks; profile more steps"
    offset, uncertain_ns = aligned
    late: list[Floats] = []
    spans: list[list[Intervals]] = [[] for _ in facts]
    for one in found:
        came = one.start_ns - offset[list(one.ranks)]
        last = _awaited_ns(one, came, offset)
        late.append((came - came.min(axis=1, keepdims=True)) / 1e3)
        until = np.minimum(one.start_ns + np.maximum(last - came, 0), one.end_ns)
        for column, rank in enumerate(one.ranks):
            spans[rank].append(np.column_stack((one.start_ns[:, column], until[:, column])))
    us = np.stack([_waited_us(one, np.concatenate(mine), labels) for one, mine in zip(facts, spans, strict=True)])
    return Waiting(us, tuple(late), uncertain_ns / 1e3), ""


def _awaited_ns(one: Meetings, came: Ints, offset: Ints) -> Ints:
    """Until when the ranks of each meeting wait for each other: until the last comes. Where one rank sends to all, it
    may leave before others come; then nobody is taken to wait."""
    last: Ints = came.max(axis=1)
    left: Ints = (one.end_ns - offset[list(one.ranks)]).min(axis=1)
    waited = np.isin(one.kind, matching.TOGETHER) | (left >= last)
    return np.where(waited, last, came.min(axis=1))[:, None]


def _waited_us(one: RankFacts, spans: Intervals, labels: tuple[str, ...]) -> Floats:
    """Exposed waiting of a rank in each common step; collectives that wait side by side count once."""
    waited = intersect(union(spans[:, 0], spans[:, 1]), one.exposed)
    ends = np.append(one.starts_ns[1:], np.iinfo(np.int64).max)
    by_step: Floats = overlap_of_each(one.starts_ns, ends, waited) / 1e3
    return by_step[_places(one, labels)]
