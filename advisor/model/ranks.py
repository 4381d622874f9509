"""The ranks of a job: each by itself, and side by side."""

from __future__ import annotations

from dataclasses import dataclass, field

from advisor.model.metrics import Metric, OpRow
from advisor.model.modules import ModuleTable
from advisor.model.steps import BreakdownItem, StepsSummary
from advisor.model.timeline import Timeline


@dataclass(frozen=True, slots=True)
class RankSummary:
    """One trace of the job."""

    rank: int
    file: str
    metrics: dict[str, Metric]
    steps: StepsSummary
    breakdown: tuple[BreakdownItem, ...]


@dataclass(frozen=True, slots=True)
class ComparedRank:
    """A rank beside the others of its job, µs per profiled step.

    node        number of its node, counted by lowest rank; None where not known
    mesh        kind of parallelism (a key of `parallelism.KINDS`) -> place in it; what process groups describe
    own_us      the step without exposed communication
    waits_us    what it only waits for ranks that join a collective or send a message later; None where not known
    waits_for   the rank that it waits for longest, waits_for_us so long; None where it waits for none
    awaited_us  what the rank that waits longest for this one waits for it
    last_share  share of the matched collectives of its groups that it joins last
    more        the part of the step, communication left out, in which it is furthest above the median rank: more_us;
                empty where it is above it in none
    """

    rank: int
    own_us: float
    node: int | None = None
    mesh: dict[str, int] = field(default_factory=dict)
    waits_us: float | None = None
    waits_for: int | None = None
    waits_for_us: float = 0.0
    awaited_us: float | None = None
    last_share: float | None = None
    more: str = ""
    more_us: float = 0.0


@dataclass(frozen=True, slots=True)
class RankGroup:
    """The ranks at one place of one dimension of a job, µs per profiled step.

    kind        "node", or a kind of parallelism
    own_us      median of its ranks' `own_us`;  more_us: against the median of the other groups of this kind
    waits_us    median of its ranks' `waits_us`; None where not known
    more        the part in which most of more_us lies; empty where it takes no more than the others
    stands_out  more_us is a finding's share of the step, and each of its ranks is half as far above
                the median rank of the others
    """

    kind: str
    index: int
    ranks: tuple[int, ...]
    own_us: float
    more_us: float
    waits_us: float | None = None
    more: str = ""
    stands_out: bool = False


@dataclass(frozen=True, slots=True)
class ComparedRanks:
    """The ranks of a job side by side, over the steps that all of them have.

    step_us       a profiled step of the rank that stands for the job
    groups        by kind and place, where there are at least two of a kind
    uncertain_us  how far the clocks of ranks may still be apart; None where no collectives align them
    why           why it is not known who waits for whom; empty where it is
    """

    step_us: float
    steps: int
    ranks: tuple[ComparedRank, ...]
    groups: tuple[RankGroup, ...] = ()
    uncertain_us: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class DetailedRank:
    """A rank in full beside the one that stands for the job: the costliest rows, and of modules the folded tree.

    why   "others wait for it", "most own work", "least own work", "asked for", or kind and place of a `RankGroup`
          ("stages:1"); empty in a job so small that every rank is shown
    """

    rank: int
    why: tuple[str, ...] = ()
    timeline: Timeline | None = None
    kernels: tuple[OpRow, ...] = ()
    ops: tuple[OpRow, ...] = ()
    lines: tuple[OpRow, ...] = ()
    modules: ModuleTable | None = None
