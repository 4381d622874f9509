"""Everything that rules and reporters may import: the promise to third parties.

Additive changes only. A rule asks for these types in the parameters of its `check`; a reporter receives a `Report`.
"""

from __future__ import annotations

from advisor.analyses.batch_split import BatchSplit
from advisor.analyses.breakdown import Breakdown
from advisor.analyses.communication import Communication, is_communication
from advisor.analyses.copies import Copies, CopySite
from advisor.analyses.counters import Counters
from advisor.analyses.device import Device
from advisor.analyses.environment import Environment
from advisor.analyses.facts import LoaderFacts, OptimizerFacts
from advisor.analyses.gpu_busy import GpuBusy
from advisor.analyses.gpu_idle import Gap, GpuIdle, IdleGroup
from advisor.analyses.host_communication import HostCommunication
from advisor.analyses.host_gaps import HostGaps
from advisor.analyses.input_wait import InputWaits
from advisor.analyses.kernel_work import KernelWork, WorkGroup
from advisor.analyses.launches import Launches
from advisor.analyses.line_costs import LineCost, LineCosts
from advisor.analyses.lines import Lines, LinesTrace, LineTime
from advisor.analyses.links import Links
from advisor.analyses.matmuls import Matmuls
from advisor.analyses.memory import PeakMemory
from advisor.analyses.memory_trend import MemoryTrend
from advisor.analyses.nesting import Nesting
from advisor.analyses.observed_ops import ObservedOps, dispatched
from advisor.analyses.op_costs import alike
from advisor.analyses.op_work import element_counts, flops, shapes
from advisor.analyses.ops import Ops
from advisor.analyses.optimizer_work import OptimizerWork
from advisor.analyses.parallelism import KindOfTalk, Parallelism
from advisor.analyses.phases import Phases
from advisor.analyses.rates import Rates
from advisor.analyses.replay import Replay, replayed_or
from advisor.analyses.reused import Reused
from advisor.analyses.scale import Scale
from advisor.analyses.side_threads import SideThread, SideThreads
from advisor.analyses.steps import Steps
from advisor.analyses.syncs import Syncs, SyncSite
from advisor.analyses.thread_use import ThreadUse
from advisor.analyses.undilated import Stretch, Undilated, together
from advisor.analyses.unread import Unread
from advisor.capture.record import (
    KeptGraphs,
    Loader,
    LossLabels,
    Mask,
    Optimizer,
    RankRecord,
    Settings,
    SparseProduct,
    StepTimes,
)
from advisor.computed import Missing
from advisor.drawn import (
    ALLREDUCE,
    BACKWARD,
    D2H_PAGEABLE,
    ELEMENTWISE,
    FORWARD,
    GEMM,
    GLOO,
    H2D_PAGEABLE,
    H2D_PINNED,
    ITEM,
    NCCL,
    NEXT,
    NEXT_WORKERS,
    OPTIMIZER,
    SYNC,
    TO,
    TO_BLOCKING,
    ZERO_GRAD,
    Ev,
)
from advisor.frozen import dataclass
from advisor.hardware import Hardware, lookup
from advisor.model import (
    SCHEMA,
    VERSION,
    BreakdownItem,
    Finding,
    Fix,
    Health,
    Joint,
    Lane,
    Metric,
    ModuleCost,
    ModuleTable,
    OpRow,
    Outcome,
    RankSummary,
    ReplayCheck,
    Report,
    RunInfo,
    Saving,
    Segment,
    Severity,
    Source,
    StepsSummary,
    Timeline,
    Times,
    finding_order,
)
from advisor.ranks.facts import LinePart, RankFacts
from advisor.ranks.matching import Meetings
from advisor.ranks.passes import Passes
from advisor.ranks.ranks import Ranks, Waiting
from advisor.replay import edits
from advisor.reportfile import encode as encode_report
from advisor.rule import Example, Rule
from advisor.timeline import Drawing, draw
from advisor.trace.autograd import AUTOGRAD_NODE, FIRST_GRADIENT
from advisor.trace.events import Category, Events, Trace
from advisor.trace.intervals import Intervals, intersect, starts_in, subtract, total, union

__all__ = [
    "ALLREDUCE",
    "AUTOGRAD_NODE",
    "BACKWARD",
    "D2H_PAGEABLE",
    "ELEMENTWISE",
    "FIRST_GRADIENT",
    "FORWARD",
    "GEMM",
    "GLOO",
    "H2D_PAGEABLE",
    "H2D_PINNED",
    "ITEM",
    "NCCL",
    "NEXT",
    "NEXT_WORKERS",
    "OPTIMIZER",
    "SCHEMA",
    "SYNC",
    "TO",
    "TO_BLOCKING",
    "VERSION",
    "ZERO_GRAD",
    "BatchSplit",
    "Breakdown",
    "BreakdownItem",
    "Category",
    "Communication",
    "Copies",
    "CopySite",
    "Counters",
    "Device",
    "Drawing",
    "Environment",
    "Ev",
    "Events",
    "Example",
    "Finding",
    "Fix",
    "Gap",
    "GpuBusy",
    "GpuIdle",
    "Hardware",
    "Health",
    "HostCommunication",
    "HostGaps",
    "IdleGroup",
    "InputWaits",
    "Intervals",
    "Joint",
    "KeptGraphs",
    "KernelWork",
    "KindOfTalk",
    "Lane",
    "Launches",
    "LineCost",
    "LineCosts",
    "LinePart",
    "LineTime",
    "Lines",
    "LinesTrace",
    "Links",
    "Loader",
    "LoaderFacts",
    "LossLabels",
    "Mask",
    "Matmuls",
    "Meetings",
    "MemoryTrend",
    "Metric",
    "Missing",
    "ModuleCost",
    "ModuleTable",
    "Nesting",
    "ObservedOps",
    "OpRow",
    "Ops",
    "Optimizer",
    "OptimizerFacts",
    "OptimizerWork",
    "Outcome",
    "Parallelism",
    "Passes",
    "PeakMemory",
    "Phases",
    "RankFacts",
    "RankRecord",
    "RankSummary",
    "Ranks",
    "Rates",
    "Replay",
    "ReplayCheck",
    "Report",
    "Reused",
    "Rule",
    "RunInfo",
    "Saving",
    "Scale",
    "Segment",
    "Settings",
    "Severity",
    "SideThread",
    "SideThreads",
    "Source",
    "SparseProduct",
    "StepTimes",
    "Steps",
    "StepsSummary",
    "Stretch",
    "SyncSite",
    "Syncs",
    "ThreadUse",
    "Timeline",
    "Times",
    "Trace",
    "Undilated",
    "Unread",
    "Waiting",
    "WorkGroup",
    "alike",
    "dataclass",
    "dispatched",
    "draw",
    "edits",
    "element_counts",
    "encode_report",
    "finding_order",
    "flops",
    "intersect",
    "is_communication",
    "lookup",
    "replayed_or",
    "shapes",
    "starts_in",
    "subtract",
    "together",
    "total",
    "union",
]
