"""The report."""

from __future__ import annotations

from msgspec import Struct, field

from advisor.model.findings import Finding, Outcome, in_order
from advisor.model.line_share import LineShare
from advisor.model.memory import MemoryPeak
from advisor.model.metrics import Counter, Metric, OpRow
from advisor.model.modules import ModuleTable
from advisor.model.ranks import ComparedRanks, DetailedRank, RankSummary
from advisor.model.run_info import Health, RunInfo
from advisor.model.savings import Joint, ReplayCheck
from advisor.model.steps import BreakdownItem, StepsSummary
from advisor.model.timeline import Timeline
from advisor.model.trials import Tried
from advisor.model.what_if import WhatIf, WhatIfRanks
from advisor.model.whole_run import RunAccount
from advisor.model.windows import ProfiledWindow

SCHEMA = "torch-advisor/report"
VERSION = 1


class Report(Struct, frozen=True):
    """Everything that outputs show. `advisor.report.report_file` reads and writes it as report.json."""

    run: RunInfo
    health: tuple[Health, ...]
    steps: StepsSummary
    metrics: dict[str, Metric]
    breakdown: tuple[BreakdownItem, ...]
    outcomes: tuple[Outcome, ...]
    joint: Joint | None = None
    replay: ReplayCheck | None = None
    ranks: tuple[RankSummary, ...] = ()
    timeline: Timeline | None = None
    kernels: tuple[OpRow, ...] = ()
    ops: tuple[OpRow, ...] = ()
    counters: tuple[Counter, ...] = ()
    lines: tuple[OpRow, ...] = ()  # by the user's line (`train.py:88 train`), on the loop's thread
    line_marks: dict[str, str] = field(default_factory=dict)  # name of a line -> digest of its text, if recorded
    line_shares: tuple[LineShare, ...] = ()  # what lines cost without the profiler; empty if lines are not known
    what_if: tuple[WhatIf, ...] = ()  # requested estimates for other accelerators
    modules: ModuleTable | None = None  # cost by module; None if no modules were recorded
    account: RunAccount | None = None  # of the whole run; None if `advisor run` did not time it
    tried: Tried | None = None  # what `advisor try` measured
    windows: tuple[ProfiledWindow, ...] = ()  # in order, if there are several; all figures describe the first
    memory: MemoryPeak | None = None  # what holds memory at the peak; None if memory events were not recorded
    compared: ComparedRanks | None = None  # several ranks; None if fewer than two can be compared
    details: tuple[DetailedRank, ...] = ()  # ranks shown in detail in addition to the reference rank
    what_if_ranks: WhatIfRanks | None = None  # requested estimates for other numbers of ranks
    schema: str = SCHEMA
    version: int = VERSION

    @property
    def step_us(self) -> float | None:
        """Duration of a step (`step_time_us`), which savings are parts of; None if it was not measured."""
        metric = self.metrics.get("step_time_us")
        return metric.value if metric and metric.status == "measured" else None

    def findings(self) -> list[tuple[Outcome, Finding]]:
        """All findings of confirmed and unconfirmed rules, in the order of `in_order`."""
        pairs = [(outcome, finding) for outcome in self.outcomes for finding in outcome.findings]
        return in_order(pairs, self.step_us)
