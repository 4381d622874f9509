"""The ranks of a job: each on its own, and compared."""

from __future__ import annotations

from msgspec import Struct, field

from advisor.model.metrics import Metric, OpRow
from advisor.model.modules import ModuleTable
from advisor.model.steps import BreakdownItem, StepsSummary
from advisor.model.timeline import Timeline


class RankSummary(Struct, frozen=True):
    """One trace of the job."""

    rank: int
    file: str
    metrics: dict[str, Metric]
    steps: StepsSummary
    breakdown: tuple[BreakdownItem, ...]


class ComparedRank(Struct, frozen=True):
    """A rank compared with the others of its job, µs per profiled step.

    node        number of its node, ordered by lowest rank; None if unknown
    mesh        kind of parallelism (a key of `parallelism.KINDS`) -> index in it, from process groups
    own_us      the step without exposed communication
    waits_us    time spent waiting for ranks that join a collective or send a message later; None if unknown
    waits_for   the rank it waits for longest, for waits_for_us; None if it waits for none
    awaited_us  the longest time that another rank waits for this one
    last_share  share of the matched collectives of its groups that it joins last
    more        the part of the step, except communication, in which it exceeds the median rank most, by more_us; empty
                if it exceeds it in none
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


class RankGroup(Struct, frozen=True):
    """The ranks that share one index in one dimension of a job, µs per profiled step.

    kind        "node", or a kind of parallelism
    own_us      median of its ranks' `own_us`;  more_us: minus the median of the other groups of this kind
    waits_us    median of its ranks' `waits_us`; None if unknown
    more        the part of the step with most of more_us; empty if the group takes no longer than the others
    stands_out  more_us is large enough for a finding, and each of its ranks exceeds the median rank of the others by
                at least half of it
    """

    kind: str
    index: int
    ranks: tuple[int, ...]
    own_us: float
    more_us: float
    waits_us: float | None = None
    more: str = ""
    stands_out: bool = False


class SlowLinks(Struct, frozen=True):
    """A set of ranks that sends longer than its like. nodes: those that it is on; more_us: above their median."""

    ranks: tuple[int, ...]
    nodes: tuple[int, ...]
    sent_us: float
    more_us: float


class RankLinks(Struct, frozen=True):
    """Equally many sets of equally many ranks that send each other equal messages, µs per profiled step of each set.

    within     whether each set is on one node; None if nodes are unknown
    ranks      in each set;  sets: how many there are;  collectives: of each, per step
    sent_us    median over the sets of the time from when the last rank joined a collective;  least_us, most_us: of any
    slow       sets that stand out: above the others' median by enough for a finding, by half of it, and by more than
               the clocks may be apart
    """

    within: bool | None
    ranks: int
    sets: int
    collectives: float
    sent_us: float
    least_us: float
    most_us: float
    slow: tuple[SlowLinks, ...] = ()


class ComparedRanks(Struct, frozen=True):
    """The ranks of a job compared, over the steps that all of them have.

    step_us       a profiled step of the reference rank
    groups        by kind and index, if there are at least two of a kind
    links         sets of ranks that send equal messages, if there are at least three alike
    uncertain_us  remaining difference between the clocks of ranks; None if no collectives align them
    why           why it is not known which rank waits for which; empty if it is known
    """

    step_us: float
    steps: int
    ranks: tuple[ComparedRank, ...]
    groups: tuple[RankGroup, ...] = ()
    uncertain_us: float | None = None
    why: str = ""
    links: tuple[RankLinks, ...] = ()


class DetailedRank(Struct, frozen=True):
    """A rank shown in detail, in addition to the reference rank: the costliest rows, and the folded tree of modules.

    why   "others wait for it", "most own work", "least own work", "asked for", or kind and index of a `RankGroup`
          ("stages:1"); empty in a job so small that every rank is shown
    """

    rank: int
    why: tuple[str, ...] = ()
    timeline: Timeline | None = None
    kernels: tuple[OpRow, ...] = ()
    ops: tuple[OpRow, ...] = ()
    lines: tuple[OpRow, ...] = ()
    modules: ModuleTable | None = None
