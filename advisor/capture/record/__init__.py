"""What capture records in addition to the trace: the structs of run.json (schema torch-advisor/run, version 1).

Standard library and msgspec only. `None` and an absent key mean *unknown*, never "off". The child process writes the
same keys as plain JSON, without importing this package (it must not import msgspec into the user's process).
"""

from advisor.capture.record.calibration import Measured
from advisor.capture.record.code_place import CodePlace, Container, MadeClass, TextBlock
from advisor.capture.record.dataflow import (
    ALIVE,
    ASKS,
    SAME,
    WRITTEN,
    Dataflow,
    EqualLayers,
    EqualPasses,
    Features,
    JudgedOps,
    ZeroTerms,
)
from advisor.capture.record.held_memory import HeldVariable, KeptGraphs, OutOfMemory
from advisor.capture.record.rank import LaterWindow, RankRecord, Settings
from advisor.capture.record.run_file import SCHEMA, VERSION, RunRecord, read
from advisor.capture.record.steps import StepTimes, TraceFile
from advisor.capture.record.tensors import DenseMatrix, Lookup, LossLabels, Mask, SampleLengths, SparseProduct
from advisor.capture.record.training import Loader, Optimizer, Pictures
from advisor.capture.record.vitals import MemoryReading, ThreadTime, Vitals
from advisor.capture.record.whole_run import ForwardPass, RunSamples, RunTimes, StepTrend, TrendLine

__all__ = [
    "ALIVE",
    "ASKS",
    "SAME",
    "SCHEMA",
    "VERSION",
    "WRITTEN",
    "CodePlace",
    "Container",
    "Dataflow",
    "DenseMatrix",
    "EqualLayers",
    "EqualPasses",
    "Features",
    "ForwardPass",
    "HeldVariable",
    "JudgedOps",
    "KeptGraphs",
    "LaterWindow",
    "Loader",
    "Lookup",
    "LossLabels",
    "MadeClass",
    "Mask",
    "Measured",
    "MemoryReading",
    "Optimizer",
    "OutOfMemory",
    "Pictures",
    "RankRecord",
    "RunRecord",
    "RunSamples",
    "RunTimes",
    "SampleLengths",
    "Settings",
    "SparseProduct",
    "StepTimes",
    "StepTrend",
    "TextBlock",
    "ThreadTime",
    "TraceFile",
    "TrendLine",
    "Vitals",
    "ZeroTerms",
    "read",
]
