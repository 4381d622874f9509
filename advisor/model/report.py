"""The report."""

from __future__ import annotations

from dataclasses import dataclass, field

from advisor.model.findings import Finding, Outcome, finding_order
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


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that any output shows. `advisor.report.report_file` reads and writes it as report.json."""

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
    line_marks: dict[str, str] = field(default_factory=dict)  # name of a line -> what tells its text; where recorded
    what_if: tuple[WhatIf, ...] = ()  # other accelerators that were asked about
    modules: ModuleTable | None = None  # cost by module; None where the input never told of modules
    account: RunAccount | None = None  # of the whole run; None where `advisor run` did not watch it
    tried: Tried | None = None  # what `advisor try` measured
    windows: tuple[ProfiledWindow, ...] = ()  # in their order, where there are several; the figures are of the first
    memory: MemoryPeak | None = None  # what holds memory at the peak; None where memory events were not recorded
    compared: ComparedRanks | None = None  # several ranks; None where fewer than two can be compared
    details: tuple[DetailedRank, ...] = ()  # ranks in full besides the one that stands for the job
    what_if_ranks: WhatIfRanks | None = None  # other numbers of ranks, where they were asked about
    schema: str = SCHEMA
    version: int = VERSION

    @property
    def step_us(self) -> float | None:
        """What a step takes (`step_time_us`), which savings are parts of; None where it was not measured."""
        metric = self.metrics.get("step_time_us")
        return metric.value if metric and metric.status == "measured" else None

    def findings(self) -> list[tuple[Outcome, Finding]]:
        """All findings of confirmed and unconfirmed rules, as `finding_order` has them."""
        pairs = [(outcome, finding) for outcome in self.outcomes for finding in outcome.findings]
        return sorted(pairs, key=lambda pair: finding_order(pair[0].rule, pair[1], self.step_us))
