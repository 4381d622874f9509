"""Everything that rules and reporters may import: the promise to third parties.

Additive changes only. A rule asks for these types in the parameters of its `check`; a reporter receives a `Report`.
"""

from __future__ import annotations

from dataclasses import dataclass

from advisor.analyses.base.classify import LAYOUT_TRANSPOSES
from advisor.analyses.base.device import Device
from advisor.analyses.base.environment import Environment
from advisor.analyses.base.gpu_busy import GpuBusy
from advisor.analyses.base.host_communication import HostCommunication, host_collectives
from advisor.analyses.base.links import Links
from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.recorded_facts import LoaderFacts, OptimizerFacts
from advisor.analyses.base.scale import Scale
from advisor.analyses.base.step_drift import SlowerLine, StepDrift
from advisor.analyses.base.step_ops import StepOps
from advisor.analyses.base.steps import Steps
from advisor.analyses.base.training import Training
from advisor.analyses.base.watched_run import WatchedRun
from advisor.analyses.communication.callers import Callers, CallerTime, CollectiveRate
from advisor.analyses.communication.communication import Communication, is_communication
from advisor.analyses.communication.exchanges import Exchanges
from advisor.analyses.communication.library import Library
from advisor.analyses.communication.needless_reductions import NeedlessReductions
from advisor.analyses.communication.needless_search import NeedlessSearch
from advisor.analyses.communication.parallelism import KindOfTalk, Parallelism
from advisor.analyses.costs.batch_split import BatchSplit
from advisor.analyses.costs.line_costs import LineCost, LineCosts, callers_above
from advisor.analyses.costs.price import Price, calm, less_by, refill_us
from advisor.analyses.costs.replay import Replay, replayed_or
from advisor.analyses.dataflow import backward_passes
from advisor.analyses.dataflow.backward_passes import BackwardPasses
from advisor.analyses.dataflow.forwards_without_backward import (
    NO_GRAD_SAVES,
    Unfollowed,
    UnfollowedForwards,
    is_layer,
    is_network,
    live_ops,
)
from advisor.analyses.dataflow.growing_ops import GrowingOps
from advisor.analyses.dataflow.judged_steps import JudgedSteps
from advisor.analyses.dataflow.metric_passes import MetricPasses
from advisor.analyses.dataflow.observed_ops import ObservedOps, dispatched
from advisor.analyses.dataflow.observed_steps import ObservedSteps
from advisor.analyses.dataflow.readers import Readers
from advisor.analyses.dataflow.reused import Reused
from advisor.analyses.dataflow.side_results import SideResults
from advisor.analyses.dataflow.unread import Unread
from advisor.analyses.lines.call_sites import CallSites
from advisor.analyses.lines.lines import Lines, LinesTrace, LineTime
from advisor.analyses.loops.line_blocks import LOOP_ITERATIONS, MOST_KEPT, Block
from advisor.analyses.loops.loop_dependencies import LoopDependencies, LoopDependency
from advisor.analyses.loops.loop_places import CalledModel, LoopPlaces, loop_around
from advisor.analyses.loops.loops import Loop
from advisor.analyses.step.breakdown import Breakdown
from advisor.analyses.step.copies import Copies, CopySite
from advisor.analyses.step.counters import Counters
from advisor.analyses.step.deprofiled import Deprofiled, Stretch, together
from advisor.analyses.step.gpu_idle import Gap, GpuIdle, IdleGroup
from advisor.analyses.step.host_gaps import HostGaps
from advisor.analyses.step.input_wait import InputWaits
from advisor.analyses.step.launches import Launches
from advisor.analyses.step.memory import PeakMemory
from advisor.analyses.step.memory_trend import MemoryTrend
from advisor.analyses.step.ops import Ops
from advisor.analyses.step.optimizer_work import OptimizerWork
from advisor.analyses.step.phases import Phases
from advisor.analyses.step.rates import Rates
from advisor.analyses.step.side_threads import SideThread, SideThreads
from advisor.analyses.step.state_reads import StateRead, StateReads, where_read
from advisor.analyses.step.syncs import Syncs, SyncSite
from advisor.analyses.step.thread_use import ThreadUse
from advisor.analyses.work.kernel_work import KernelWork, WorkGroup
from advisor.analyses.work.matmuls import Matmuls
from advisor.analyses.work.op_costs import alike, operations_of, work_of
from advisor.analyses.work.op_work import element_counts, flops, shapes
from advisor.analyses.work.operands import (
    backward_of,
    by_dims,
    dims_of,
    dtypes_of,
    have_nodes,
    nodes_of,
    shapes_in,
    sizes,
)
from advisor.calibration.calibration import Calibration, Quantity
from advisor.capture.record import (
    Container,
    EqualLayers,
    EqualPasses,
    Features,
    KeptGraphs,
    Loader,
    LossLabels,
    Mask,
    Optimizer,
    Pictures,
    RankRecord,
    SampleLengths,
    Settings,
    SparseProduct,
    StepTimes,
    ZeroTerms,
)
from advisor.computed import Missing
from advisor.constants import Constant, constant
from advisor.drawing.events import (
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
from advisor.drawing.timeline import Drawing, draw
from advisor.engine.rule import Example, Rule
from advisor.gate.comparison.model import Compared, Comparison, Mover, Movers
from advisor.gate.comparison.model import in_words as change_in_words
from advisor.gate.history.model import Changed, History, Series
from advisor.gate.history.texts import sentence as history_sentence
from advisor.gate.history.texts import short as short_commit
from advisor.gate.history.texts import summary as history_summary
from advisor.gate.history.texts import value as history_value
from advisor.gate.model import Cause, Flagged
from advisor.gate.model import Row as ComparedRow
from advisor.hardware import Hardware, lookup
from advisor.model import (
    SCHEMA,
    VERSION,
    AtRanks,
    BreakdownItem,
    ComparedRank,
    ComparedRanks,
    DetailedRank,
    Finding,
    Fix,
    Health,
    Joint,
    Lane,
    LineShare,
    MemoryHolder,
    MemoryPeak,
    Metric,
    ModuleCost,
    ModuleTable,
    Moved,
    OpRow,
    Outcome,
    ProfiledWindow,
    RankGroup,
    RankSummary,
    ReplayCheck,
    Report,
    RunAccount,
    RunInfo,
    RunLine,
    RunPart,
    Saving,
    Segment,
    Severity,
    Source,
    StepsSummary,
    Timeline,
    Times,
    Treatment,
    Trial,
    Tried,
    WhatIfRanks,
    finding_order,
)
from advisor.places.user_folders import cache_folder
from advisor.quantities import data_size, duration, duration_unit, significant
from advisor.ranks.matching import Meetings
from advisor.ranks.point_to_point import Passes
from advisor.ranks.rank_facts import LinePart, RankFacts
from advisor.ranks.ranks import Ranks, Waiting
from advisor.replay import edits
from advisor.report import trial_words
from advisor.report.report_file import encode as encode_report
from advisor.trace.events import Category, Events, Trace
from advisor.trace.intervals import Intervals, intersect, overlap_of_each, starts_in, subtract, total, union
from advisor.trace.op_names import AUTOGRAD_NODE, FIRST_GRADIENT

# Former names, for packs that import them.
TURNS = LOOP_ITERATIONS
Undilated = Deprofiled

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
    "LAYOUT_TRANSPOSES",
    "LOOP_ITERATIONS",
    "MOST_KEPT",
    "NCCL",
    "NEXT",
    "NEXT_WORKERS",
    "NO_GRAD_SAVES",
    "OPTIMIZER",
    "SCHEMA",
    "SYNC",
    "TO",
    "TO_BLOCKING",
    "VERSION",
    "ZERO_GRAD",
    "AtRanks",
    "BackwardPasses",
    "BatchSplit",
    "Block",
    "Breakdown",
    "BreakdownItem",
    "Calibration",
    "CallSites",
    "CalledModel",
    "CallerTime",
    "Callers",
    "Category",
    "Cause",
    "Changed",
    "CollectiveRate",
    "Communication",
    "Compared",
    "ComparedRank",
    "ComparedRanks",
    "ComparedRow",
    "Comparison",
    "Constant",
    "Container",
    "Copies",
    "CopySite",
    "Counters",
    "Deprofiled",
    "DetailedRank",
    "Device",
    "Drawing",
    "Environment",
    "EqualLayers",
    "EqualPasses",
    "Ev",
    "Events",
    "Example",
    "Exchanges",
    "Features",
    "Finding",
    "Fix",
    "Flagged",
    "Gap",
    "GpuBusy",
    "GpuIdle",
    "GrowingOps",
    "Hardware",
    "Health",
    "History",
    "HostCommunication",
    "HostGaps",
    "IdleGroup",
    "InputWaits",
    "Intervals",
    "Joint",
    "JudgedSteps",
    "KeptGraphs",
    "KernelWork",
    "KindOfTalk",
    "Lane",
    "Launches",
    "Library",
    "LineCost",
    "LineCosts",
    "LinePart",
    "LineShare",
    "LineTime",
    "Lines",
    "LinesTrace",
    "Links",
    "Loader",
    "LoaderFacts",
    "Loop",
    "LoopDependencies",
    "LoopDependency",
    "LoopPlaces",
    "LossLabels",
    "Mask",
    "Matmuls",
    "Meetings",
    "MemoryHolder",
    "MemoryPeak",
    "MemoryTrend",
    "Metric",
    "MetricPasses",
    "Missing",
    "ModuleCost",
    "ModuleTable",
    "Moved",
    "Mover",
    "Movers",
    "NeedlessReductions",
    "NeedlessSearch",
    "Nesting",
    "ObservedOps",
    "ObservedSteps",
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
    "Pictures",
    "Price",
    "ProfiledWindow",
    "Quantity",
    "RankFacts",
    "RankGroup",
    "RankRecord",
    "RankSummary",
    "Ranks",
    "Rates",
    "Readers",
    "Replay",
    "ReplayCheck",
    "Report",
    "Reused",
    "Rule",
    "RunAccount",
    "RunInfo",
    "RunLine",
    "RunPart",
    "SampleLengths",
    "Saving",
    "Scale",
    "Segment",
    "Series",
    "Settings",
    "Severity",
    "SideResults",
    "SideThread",
    "SideThreads",
    "SlowerLine",
    "Source",
    "SparseProduct",
    "StateRead",
    "StateReads",
    "StepDrift",
    "StepOps",
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
    "Training",
    "Treatment",
    "Trial",
    "Tried",
    "Unfollowed",
    "UnfollowedForwards",
    "Unread",
    "Waiting",
    "WatchedRun",
    "WhatIfRanks",
    "WorkGroup",
    "ZeroTerms",
    "alike",
    "backward_of",
    "backward_passes",
    "by_dims",
    "cache_folder",
    "callers_above",
    "calm",
    "change_in_words",
    "constant",
    "data_size",
    "dataclass",
    "dims_of",
    "dispatched",
    "draw",
    "dtypes_of",
    "duration",
    "duration_unit",
    "edits",
    "element_counts",
    "encode_report",
    "finding_order",
    "flops",
    "have_nodes",
    "history_sentence",
    "history_summary",
    "history_value",
    "host_collectives",
    "intersect",
    "is_communication",
    "is_layer",
    "is_network",
    "less_by",
    "live_ops",
    "lookup",
    "loop_around",
    "nodes_of",
    "operations_of",
    "overlap_of_each",
    "refill_us",
    "replayed_or",
    "shapes",
    "shapes_in",
    "short_commit",
    "significant",
    "sizes",
    "starts_in",
    "subtract",
    "together",
    "total",
    "trial_words",
    "union",
    "where_read",
    "work_of",
]
