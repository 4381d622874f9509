"""Analyses of a trace, what they are made of, and the replay: what the parameters of a `check` ask for."""

from __future__ import annotations

from advisor.analyses.base.classify import LAYOUT_TRANSPOSES, launch_calls
from advisor.analyses.base.device import Device
from advisor.analyses.base.environment import Environment
from advisor.analyses.base.evaluation_calls import EvaluationCall, EvaluationCalls
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
from advisor.analyses.base.watched_run import Evaluated, WatchedRun
from advisor.analyses.communication.callers import Callers, CallerTime, CollectiveRate
from advisor.analyses.communication.communication import Communication, element_bytes, is_communication
from advisor.analyses.communication.exchanges import Exchanges
from advisor.analyses.communication.library import Library
from advisor.analyses.communication.needless_reductions import NeedlessReductions
from advisor.analyses.communication.needless_search import NeedlessSearch
from advisor.analyses.communication.parallelism import KindOfTalk, Parallelism
from advisor.analyses.costs.batch_split import BatchSplit
from advisor.analyses.costs.line_costs import LineCost, LineCosts, callers_above
from advisor.analyses.costs.metric_modules import MetricModules
from advisor.analyses.costs.module_calls import ModuleCalls
from advisor.analyses.costs.price import Price, calm, less_by
from advisor.analyses.costs.replay import Replay, replayed_or
from advisor.analyses.dataflow.growing_ops import GrowingOps
from advisor.analyses.dataflow.growing_work import GrowingWork, Growth
from advisor.analyses.dataflow.judged_steps import JudgedSteps
from advisor.analyses.dataflow.metric_passes import MetricPasses
from advisor.analyses.dataflow.observed.observed_steps import ObservedSteps
from advisor.analyses.dataflow.observed_ops import ObservedOps, dispatched
from advisor.analyses.dataflow.passes import backward_passes
from advisor.analyses.dataflow.passes.backward_passes import BackwardPasses
from advisor.analyses.dataflow.passes.forwards_without_backward import (
    NO_GRAD_SAVES,
    Unfollowed,
    UnfollowedForwards,
    is_layer,
    is_network,
    live_ops,
)
from advisor.analyses.dataflow.readers import Readers
from advisor.analyses.dataflow.reused import Reused
from advisor.analyses.dataflow.side_lines import SideLines
from advisor.analyses.dataflow.side_results import SideResults
from advisor.analyses.dataflow.unread import Unread
from advisor.analyses.dataflow.weight_statistics import WeightStatistics
from advisor.analyses.lines.call_sites import CallSites
from advisor.analyses.lines.library_calls import looping_package
from advisor.analyses.lines.lines import Lines, LinesTrace, LineTime
from advisor.analyses.lines.sampled_loops import SampledLoop, SampledLoops
from advisor.analyses.loops.line_blocks import LOOP_ITERATIONS, MOST_KEPT, Block
from advisor.analyses.loops.loop_dependencies import LoopDependencies, LoopDependency
from advisor.analyses.loops.loop_places import CalledModel, LoopPlaces, loop_around
from advisor.analyses.loops.loops import Loop
from advisor.analyses.step.breakdown import Breakdown
from advisor.analyses.step.copies import Copies, CopySite
from advisor.analyses.step.counters import Counters
from advisor.analyses.step.deprofiled import Deprofiled, Stretch, together
from advisor.analyses.step.gap_owners import STANDSTILL
from advisor.analyses.step.gpu_idle import Gap, GpuIdle, IdleGroup
from advisor.analyses.step.gradient_hooks import below_engine, not_of_autograd
from advisor.analyses.step.host_gaps import HostGaps
from advisor.analyses.step.input_wait import InputWaits
from advisor.analyses.step.launches import Launches
from advisor.analyses.step.memory import PeakMemory
from advisor.analyses.step.memory_trend import MemoryTrend
from advisor.analyses.step.ops import Ops
from advisor.analyses.step.optimizer_work import OptimizerWork
from advisor.analyses.step.phases import Phases
from advisor.analyses.step.rates import Rates
from advisor.analyses.step.repeated_ops import OpLoop, RepeatedOps
from advisor.analyses.step.side_threads import SideThread, SideThreads
from advisor.analyses.step.stalled_steps import StalledSteps
from advisor.analyses.step.standstills import Standstills
from advisor.analyses.step.state_reads import StateRead, StateReads, where_read
from advisor.analyses.step.syncs import Syncs, SyncSite
from advisor.analyses.step.thread_use import ThreadUse
from advisor.analyses.work.convolution_switches import ConvolutionSwitches
from advisor.analyses.work.kernel_work import KernelWork, WorkGroup
from advisor.analyses.work.matmuls import Matmuls
from advisor.analyses.work.op_costs import alike, operations_of, work_of
from advisor.analyses.work.op_payload import beyond_calls
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
    times_gone_through,
    with_backward,
    with_nodes,
)
from advisor.analyses.work.sixteen_bits import in_sixteen_bits
from advisor.analyses.work.timing_runs import TimingRuns
from advisor.arrays import Floats, Ints
from advisor.arrays import Mask as RowMask  # `Mask` is that of attention
from advisor.computed import Missing
from advisor.ranks.matching import Meetings
from advisor.ranks.point_to_point import Passes
from advisor.ranks.rank_facts import LinePart, RankFacts
from advisor.ranks.ranks import Ranks, Waiting
from advisor.replay import edits
from advisor.trace.events import Category, Events, Trace
from advisor.trace.intervals import Intervals, intersect, overlap_of_each, starts_in, subtract, total, union
from advisor.trace.op_names import AUTOGRAD_NODE, FIRST_GRADIENT, GRADIENT_STORE

__all__ = [
    "AUTOGRAD_NODE",
    "FIRST_GRADIENT",
    "GRADIENT_STORE",
    "LAYOUT_TRANSPOSES",
    "LOOP_ITERATIONS",
    "MOST_KEPT",
    "NO_GRAD_SAVES",
    "STANDSTILL",
    "BackwardPasses",
    "BatchSplit",
    "Block",
    "Breakdown",
    "CallSites",
    "CalledModel",
    "CallerTime",
    "Callers",
    "Category",
    "CollectiveRate",
    "Communication",
    "ConvolutionSwitches",
    "Copies",
    "CopySite",
    "Counters",
    "Deprofiled",
    "Device",
    "Environment",
    "Evaluated",
    "EvaluationCall",
    "EvaluationCalls",
    "Events",
    "Exchanges",
    "Floats",
    "Gap",
    "GpuBusy",
    "GpuIdle",
    "GrowingOps",
    "GrowingWork",
    "Growth",
    "HostCommunication",
    "HostGaps",
    "IdleGroup",
    "InputWaits",
    "Intervals",
    "Ints",
    "JudgedSteps",
    "KernelWork",
    "KindOfTalk",
    "Launches",
    "Library",
    "LineCost",
    "LineCosts",
    "LinePart",
    "LineTime",
    "Lines",
    "LinesTrace",
    "Links",
    "LoaderFacts",
    "Loop",
    "LoopDependencies",
    "LoopDependency",
    "LoopPlaces",
    "Matmuls",
    "Meetings",
    "MemoryTrend",
    "MetricModules",
    "MetricPasses",
    "Missing",
    "ModuleCalls",
    "NeedlessReductions",
    "NeedlessSearch",
    "Nesting",
    "ObservedOps",
    "ObservedSteps",
    "OpLoop",
    "Ops",
    "OptimizerFacts",
    "OptimizerWork",
    "Parallelism",
    "Passes",
    "PeakMemory",
    "Phases",
    "Price",
    "RankFacts",
    "Ranks",
    "Rates",
    "Readers",
    "RepeatedOps",
    "Replay",
    "Reused",
    "RowMask",
    "SampledLoop",
    "SampledLoops",
    "Scale",
    "SideLines",
    "SideResults",
    "SideThread",
    "SideThreads",
    "SlowerLine",
    "StalledSteps",
    "Standstills",
    "StateRead",
    "StateReads",
    "StepDrift",
    "StepOps",
    "Steps",
    "Stretch",
    "SyncSite",
    "Syncs",
    "ThreadUse",
    "TimingRuns",
    "Trace",
    "Training",
    "Unfollowed",
    "UnfollowedForwards",
    "Unread",
    "Waiting",
    "WatchedRun",
    "WeightStatistics",
    "WorkGroup",
    "alike",
    "backward_of",
    "backward_passes",
    "below_engine",
    "beyond_calls",
    "by_dims",
    "callers_above",
    "calm",
    "dims_of",
    "dispatched",
    "dtypes_of",
    "edits",
    "element_bytes",
    "element_counts",
    "flops",
    "have_nodes",
    "host_collectives",
    "in_sixteen_bits",
    "intersect",
    "is_communication",
    "is_layer",
    "is_network",
    "launch_calls",
    "less_by",
    "live_ops",
    "loop_around",
    "looping_package",
    "nodes_of",
    "not_of_autograd",
    "operations_of",
    "overlap_of_each",
    "replayed_or",
    "shapes",
    "shapes_in",
    "sizes",
    "starts_in",
    "subtract",
    "times_gone_through",
    "together",
    "total",
    "union",
    "where_read",
    "with_backward",
    "with_nodes",
    "work_of",
]
