"""What a step would take on other numbers of data-parallel or sharded ranks, each rank's batch as it is.

Measured are the computation of a step, the size of each collective, and when it is launched and waited for. What a
collective takes is fitted to those of the trace (latency and bandwidth), moved to another number of ranks by how
collectives work, and the window of the job's median rank is played again with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.arrays import Floats
from advisor.computed import Missing
from advisor.model import AtRanks, FittedCollective, StepSource, WhatIfRanks
from advisor.quantities import duration
from advisor.ranks import matching
from advisor.ranks.collective_cost import KNOWN, CollectiveCost, costs
from advisor.ranks.rank_facts import RankFacts
from advisor.ranks.ranks import Ranks
from advisor.ranks.stalls import Stalls

# Kinds of communication whose partners are all ranks of the job, each with the whole model or a share of it.
_SCALING = ("data", "sharded", "buffers", "norms")
_OTHERS = {
    "stages": "pipeline stages",
    "tensor": "layers split over ranks",
    "context": "sequences split over ranks",
    "experts": "experts on other ranks",
    "exchanged": "tables or data exchanged by all-to-all",
}
# Beyond this error of the unchanged window a replayed one is no more than a guess.
_TRUSTED_ERROR = 0.05
# Fewer computations of a step do not tell how their slowest grows with the ranks.
_FEW = 4


def at_ranks(facts: Sequence[RankFacts], reference: int, source: StepSource, numbers: Sequence[int]) -> WhatIfRanks:
    """The answer for these numbers of ranks. facts: of the ranks that are here; reference: the place of the median one;
    source: how its steps were told apart.

    Where nothing can be computed the message says why.
    """
    try:
        return _answer(facts, reference, source, numbers)
    except Missing as reason:
        return WhatIfRanks(f"The step time on other numbers of ranks cannot be computed: {reason}.")


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """What is measured.

    ranks      of the job;  known: kind -> cost;  together: whether they are of all ranks on one clock
    computing  steps without exposed communication, of every rank that is here, profiled µs, the shortest first
    """

    facts: RankFacts
    ranks: int
    stalls: Stalls
    known: dict[str, CollectiveCost]
    computing: Floats
    together: bool

    @property
    def waited_us(self) -> float:
        """Standing still for collectives, profiled µs per step."""
        return self.stalls.stalled_ns / 1e3 / self.stalls.steps

    @property
    def alone_us(self) -> float:
        """A step without that, on the scale of step_time_us."""
        return self.facts.scale.step_us - self.facts.scale.scaled(self.waited_us)


def _answer(facts: Sequence[RankFacts], reference: int, source: StepSource, numbers: Sequence[int]) -> WhatIfRanks:
    job = _measured(facts, reference, source)
    step_us = job.facts.scale.step_us
    rows = tuple(_row(job, ranks) for ranks in numbers)
    last = rows[-1]
    said = f"On {last.ranks:,} ranks instead of {job.ranks:,} this step would take"
    return WhatIfRanks(
        message=f"{said} {_span(last.low_us, last.high_us)} (now {duration(step_us)}).",
        ranks=job.ranks,
        step_us=step_us,
        alone_us=job.alone_us,
        efficiency=job.alone_us / step_us,
        rows=rows,
        fitted=tuple(_fitted(one) for one in job.known.values()),
        assumptions=tuple(_assumptions(job)),
    )


def _span(low_us: float, high_us: float | None) -> str:
    if high_us is None:
        return f"at least {duration(low_us)}"
    low, high = duration(low_us), duration(high_us)
    return f"{low} to {high}" if low != high else f"about {low}"


def _measured(facts: Sequence[RankFacts], reference: int, source: StepSource) -> _Job:
    """What is measured of the job. Raises Missing, a reason, where its scaling cannot be told."""
    if not facts:
        raise Missing("the job has only one rank, so there are no collectives to measure")
    one = facts[reference]
    _check_collectives(one, source)
    ranks = _joined(one)
    stalls = Stalls.of(one)
    # Both ends of the unchanged window: it must come out as it was measured.
    for late in (False, True):
        error_ns = stalls.played_ns(stalls.took_ns.astype(float), late=late) - stalls.stalled_ns
        share = abs(error_ns) / 1e3 / stalls.steps / one.step_us
        if share > _TRUSTED_ERROR:
            raise Missing(f"the replay of the unchanged collectives differs from the measured step by {share:.0%}")
    whole = Ranks.of(range(len(facts)), facts, reference) if len(facts) > 1 else None
    found = matching.offsets(whole.meetings, len(facts)) if whole else None
    shift = found[0] if found is not None and whole is not None and whole.whole else None
    known = costs(one, ranks, whole.meetings if whole else (), shift)
    _check_costs(known)
    return _Job(
        one, ranks, stalls, known, np.sort(np.concatenate([_computing(each) for each in facts])), shift is not None
    )


def _check_collectives(one: RankFacts, source: StepSource) -> None:
    """Raises Missing unless all communication is that of data-parallel or sharded ranks, of known sizes."""
    talks = one.talks
    if not len(talks):
        raise Missing("no collective runs in the profiled steps; profile steps in which several ranks update the model")
    if source == "window":
        raise Missing("no steps were found; mark them with prof.step(), or record with `advisor run`")
    if "" in talks.purpose:
        raise Missing("this reduced trace does not record what its collectives are for; reduce the trace again")
    other = [_OTHERS.get(kind, kind) for kind in dict.fromkeys(talks.purpose) if kind not in _SCALING]
    if other:
        raise Missing(f"ranks also communicate for {' and '.join(other)}, which depends on how the model is split")
    if "" in talks.kind:
        raise Missing("the trace does not state the kind of all collectives")
    strange = [kind for kind in dict.fromkeys(talks.kind) if kind not in KNOWN]
    if strange:
        raise Missing(f"it is not known how collectives of kind {', '.join(strange)} grow with the ranks")
    silent = [
        kind for kind, size in zip(talks.kind, talks.bytes.tolist(), strict=True) if size < 0 and kind != "barrier"
    ]
    if silent:
        raise Missing(f"the trace does not state the sizes of {silent[0]} messages; record with record_shapes=True")


def _joined(one: RankFacts) -> int:
    """How many ranks every collective joins. Raises Missing where that is unknown, or differs."""
    members = one.talks.members.tolist()
    if any(name and size < 0 for name, size in zip(one.talks.group, members, strict=True)):
        raise Missing("there are several process groups, and the trace does not state which one each collective uses")
    stated = {size for size in members if size > 0}
    world = one.world_size
    if len(stated) > 1 or (world and stated and stated != {world}):
        sizes = " and ".join(map(str, sorted(stated)))
        raise Missing(f"collectives join groups of {sizes} of {world or 'the'} ranks, whose sizes scale independently")
    ranks = world or next(iter(stated), 0)
    if ranks < 2:
        raise Missing("the trace does not state how many ranks take part in its collectives")
    return ranks


def _check_costs(known: dict[str, CollectiveCost]) -> None:
    """Raises Missing where latency and bandwidth of what takes most of the time cannot be told apart."""
    most = max(known.values(), key=lambda one: one.took_us)
    if most.rate.per_byte_us is None:
        raise Missing(
            f"every {most.kind} has about the same size, so latency and bandwidth cannot be distinguished; "
            "profile steps with messages of several sizes"
        )
    if not most.told_apart:
        raise Missing(f"larger {most.kind} messages do not take longer here, so no bandwidth can be fitted")


def _computing(one: RankFacts) -> Floats:
    """What each step takes without its exposed communication, profiled µs."""
    talking = [part for part in one.parts_us if part in ("exposed_communication", "communication")]
    whole: Floats = np.sum(list(one.parts_us.values()), axis=0) - sum(one.parts_us[part] for part in talking)
    return whole


def _row(job: _Job, ranks: int) -> AtRanks:
    """The range of a step on so many ranks."""
    factor = job.facts.scale.factor
    moved = _moved_us(job, ranks)
    # What communication adds may be a part of the step that the profiler stretched, or not.
    ends = [one * by for one in moved for by in (1.0, factor)]
    later_us = (_slowest(job.computing, ranks) - _slowest(job.computing, job.ranks)) * factor
    low_us = max(job.facts.scale.step_us + min(ends) + min(later_us, 0.0), min(job.alone_us, job.facts.scale.step_us))
    high_us = max(job.facts.scale.step_us + max(ends) + max(later_us, 0.0), low_us)
    bounded = not _elsewhere(job, ranks)
    return AtRanks(
        ranks=ranks,
        low_us=low_us,
        high_us=high_us if bounded else None,
        low_efficiency=min(job.alone_us / high_us, 1.0) if bounded else None,
        high_efficiency=min(job.alone_us / low_us, 1.0),
    )


def _moved_us(job: _Job, ranks: int) -> list[float]:
    """By how much more the rank stands still, profiled µs per step: least and most of collectives, early and late."""
    if ranks == job.ranks:
        return [0.0]
    stalls, talks = job.stalls, job.facts.talks
    took_us = stalls.took_ns / 1e3
    low, high = took_us.copy(), took_us.copy()
    for kind, cost in job.known.items():
        mine = np.array([one == kind for one in talks.kind])
        less, more = cost.longer_us(np.maximum(talks.bytes[mine], 0).astype(float), took_us[mine], ranks)
        low[mine] += less
        high[mine] += more
    found = []
    for late in (False, True):
        now_ns = stalls.played_ns(stalls.took_ns.astype(float), late=late)
        for then_us in (low, high):
            found.append((stalls.played_ns(then_us * 1e3, late=late) - now_ns) / 1e3 / stalls.steps)
    return found


def _slowest(ordered: Floats, ranks: int) -> float:
    """Mean of the longest of so many computations, each drawn from those that were measured; 0 of too few."""
    if len(ordered) < _FEW:
        return 0.0
    below = np.arange(len(ordered) + 1) / len(ordered)
    return float(ordered @ np.diff(below**ranks))


def _elsewhere(job: _Job, ranks: int) -> bool:
    """Whether so many ranks need other hosts, where all that was measured is one host's."""
    record = job.facts.record
    if record is None or not job.facts.on_device or record.local_world_size != job.ranks:
        return False
    return ranks > max(len(record.devices), job.ranks)


def _fitted(one: CollectiveCost) -> FittedCollective:
    low, high = one.rate.latency_us
    return FittedCollective(
        one.kind, one.rate.n, low, high, 1e6 / one.rate.per_byte_us if one.rate.per_byte_us else None
    )


def _assumptions(job: _Job) -> Iterator[str]:
    """What the ranges rest on, and what was not measured."""
    facts = job.facts
    yield "The batch and the computation of each rank stay the same; the global batch grows with the number of ranks."
    if "sharded" in facts.talks.purpose:
        yield "Updating the shard of a rank takes as long as now, regardless of its size."
    if facts.on_device:
        yield "Links between additional ranks are as fast as the measured ones; other links were not measured."
    else:
        yield "Each rank has the same cores and links as the measured ones; ranks that share cores compute longer."
    yield (
        "Latency grows with the logarithm of the number of ranks (tree, low end) up to that number (ring, high end); "
        "with n ranks, each link carries (n - 1)/n of a gathered or scattered message, and twice that of a reduced one."
    )
    if len(job.computing) >= _FEW:
        yield (
            "The wait for late ranks stays the same (low end), or each step waits for the slowest of all ranks, "
            "drawn from the "
            f"{len(job.computing)} computations of a step that were measured (high end)."
        )
    if not job.together:
        yield (
            "Only some ranks' traces are here, or their clocks are unknown: the fastest 10 % of each size count as "
            "transfer time, the rest as waiting."
        )
    single = [kind for kind, cost in job.known.items() if cost.rate.per_byte_us is None]
    if single:
        yield f"Of {', '.join(single)} only one size occurs: all latency or all bandwidth; the range covers both."
