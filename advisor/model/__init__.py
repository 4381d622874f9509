"""The types of a report: frozen, slotted, and exactly what report.json holds; a file for each subject.

Every output (page, terminal, SARIF, gate) is a pure function of a `Report`. Names and units here are a contract:
additive changes only, and a change of meaning raises `VERSION`.
"""

from advisor.model.findings import (
    Finding,
    Fix,
    Outcome,
    Risk,
    Severity,
    Status,
    Treatment,
    changes_less,
    finding_order,
    least_changes_first,
    of_whole_model,
)
from advisor.model.line_share import LineShare
from advisor.model.memory import MemoryHolder, MemoryPeak, MemoryPoint, MemoryRelief
from advisor.model.metrics import Counter, Metric, OpRow, Unit
from advisor.model.modules import ModuleCost, ModuleTable
from advisor.model.ranks import ComparedRank, ComparedRanks, DetailedRank, RankGroup, RankLinks, RankSummary, SlowLinks
from advisor.model.report import SCHEMA, VERSION, Report
from advisor.model.run_info import Health, RunInfo
from advisor.model.savings import NOTHING_SHARE, Basis, Joint, ReplayCheck, Saving
from advisor.model.source import Source
from advisor.model.steps import BreakdownItem, StepSource, StepsSummary, Times
from advisor.model.timeline import Lane, Segment, Timeline
from advisor.model.trials import Counted, Mechanism, Numbers, Speed, Trial, Tried, TryVerdict
from advisor.model.what_if import AtRanks, FittedCollective, WhatIf, WhatIfRanks
from advisor.model.whole_run import RunAccount, RunLine, RunPart
from advisor.model.windows import Moved, ProfiledWindow

__all__ = [
    "NOTHING_SHARE",
    "SCHEMA",
    "VERSION",
    "AtRanks",
    "Basis",
    "BreakdownItem",
    "ComparedRank",
    "ComparedRanks",
    "Counted",
    "Counter",
    "DetailedRank",
    "Finding",
    "FittedCollective",
    "Fix",
    "Health",
    "Joint",
    "Lane",
    "LineShare",
    "Mechanism",
    "MemoryHolder",
    "MemoryPeak",
    "MemoryPoint",
    "MemoryRelief",
    "Metric",
    "ModuleCost",
    "ModuleTable",
    "Moved",
    "Numbers",
    "OpRow",
    "Outcome",
    "ProfiledWindow",
    "RankGroup",
    "RankLinks",
    "RankSummary",
    "ReplayCheck",
    "Report",
    "Risk",
    "RunAccount",
    "RunInfo",
    "RunLine",
    "RunPart",
    "Saving",
    "Segment",
    "Severity",
    "SlowLinks",
    "Source",
    "Speed",
    "Status",
    "StepSource",
    "StepsSummary",
    "Timeline",
    "Times",
    "Treatment",
    "Trial",
    "Tried",
    "TryVerdict",
    "Unit",
    "WhatIf",
    "WhatIfRanks",
    "changes_less",
    "finding_order",
    "least_changes_first",
    "of_whole_model",
]
