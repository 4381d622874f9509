"""What is left of one rank when its trace is dropped: all that the report of its job is made of."""

from __future__ import annotations

from msgspec import Struct

from advisor.analyses.step.step_counts import StepCounts
from advisor.model import (
    Health,
    LineShare,
    MemoryPeak,
    ModuleTable,
    OpRow,
    Outcome,
    ProfiledWindow,
    RankSummary,
    ReplayCheck,
    RunAccount,
    Saving,
    Timeline,
    WhatIf,
)
from advisor.ranks.rank_facts import RankFacts


class RankDetail(Struct, frozen=True):
    """What the report shows of the reference rank.

    modules   only of the first ranks: if the reference rank has none, those of the first rank that has some are shown
    """

    timeline: Timeline | None
    kernels: tuple[OpRow, ...]
    ops: tuple[OpRow, ...]
    counts: StepCounts | None
    replay: ReplayCheck | None
    what_if: tuple[WhatIf, ...]
    modules: ModuleTable | None
    account: RunAccount | None
    windows: tuple[ProfiledWindow, ...]
    memory: MemoryPeak | None = None
    line_shares: tuple[LineShare, ...] = ()


class RankFigures(Struct, frozen=True, kw_only=True):
    """What a rank's reduced form contains unpacked.

    known_us   breakdown id -> µs on the scale of step_us
    replayed   the joint saving of all accepted fixes with a replayed saving
    """

    summary: RankSummary
    outcomes: tuple[Outcome, ...]
    health: tuple[Health, ...]
    devices: tuple[str, ...]
    step_us: float
    known_us: dict[str, float]
    replayed: Saving | None
    has_modules: bool


class RankResult(RankFigures, frozen=True, kw_only=True):
    """One rank.

    facts      what it is compared by; None where the job has this one rank
    detail     what is shown of it, as it came out of a reduced form until somebody asks (`detail_of`)
    """

    facts: RankFacts | None
    detail: RankDetail | bytes
