"""What a run recorded besides its trace, and what is known of its machine."""

from __future__ import annotations

from advisor.calibration.calibration import Calibration, Quantity
from advisor.capture.record import (
    CodePlace,
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
    RunSamples,
    SampleLengths,
    Settings,
    SparseProduct,
    StepTimes,
    Vitals,
    ZeroTerms,
)
from advisor.constants import Constant, constant
from advisor.hardware import Hardware, lookup

__all__ = [
    "Calibration",
    "CodePlace",
    "Constant",
    "Container",
    "EqualLayers",
    "EqualPasses",
    "Features",
    "Hardware",
    "KeptGraphs",
    "Loader",
    "LossLabels",
    "Mask",
    "Optimizer",
    "Pictures",
    "Quantity",
    "RankRecord",
    "RunSamples",
    "SampleLengths",
    "Settings",
    "SparseProduct",
    "StepTimes",
    "Vitals",
    "ZeroTerms",
    "constant",
    "lookup",
]
