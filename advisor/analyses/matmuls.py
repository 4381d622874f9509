"""In which precision matrix products, convolutions and attention run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from advisor.analyses.steps import Steps
from advisor.computed import Missing
from advisor.model import OpRow
from advisor.trace.events import Trace

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp64", "other", "unknown"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "fp16", "bf16", "fp64", "other", "unknown")


@dataclass(frozen=True, slots=True, eq=False)
class Matmuls:
    """Time of matrix products, convolutions and attention by precision.

    by_precision   µs per step (all seven keys); kernel time on a device, self time of the ops on a CPU
    us             their sum
    fp32_share     fp32 without TF32, as a share of device-busy time (of the step on a CPU); None where the precision of
                   more than a tenth of their time is unknown
    evidence       dtypes: the ops' recorded input types; names: kernels that state their precision; none
    tf32_known     whether it is certain that fp32 work did not run in TF32 (flags, architecture or kernel name)
    on_device      device time (True) or CPU time
    largest        the costliest kernels or ops, most expensive first; kind is the precision
    """

    by_precision: dict[str, float]
    us: float
    fp32_share: float | None
    evidence: Literal["dtypes", "names", "none"]
    tf32_known: bool
    on_device: bool
    largest: tuple[OpRow, ...]

    @classmethod
    def compute(cls, trace: Trace, steps: Steps) -> Matmuls:
        """Precision of the matrix work. Raises Missing where nothing of the kind ran."""
        raise Missing("this analysis is not written yet")
