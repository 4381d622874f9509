"""The optimizer's part of the step."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.analyses.steps import Steps
from advisor.computed import Missing
from advisor.model import Source
from advisor.trace.events import Trace


@dataclass(frozen=True, slots=True, eq=False)
class OptimizerWork:
    """`Optimizer.step#…` spans in W, per step.

    name       class that spent most time ("AdamW"), "" where the rows do not say
    us         time of the host in them (zero_grad excluded)
    calls      optimizer steps per step: the metric optimizer_steps_per_step
    ops        CPU ops inside
    kernels    kernels launched inside, None without device work
    device_us  their device time, None without device work
    tensors    parameters it updates, from the capture or estimated from the ops; None where neither says
    loop       one op per parameter (neither `_foreach_` nor `_fused_` ops); None where it cannot be told
    where      the user's line, where known
    """

    name: str
    us: float
    calls: float
    ops: float
    kernels: float | None
    device_us: float | None
    tensors: int | None
    loop: bool | None
    where: Source | None

    @classmethod
    def compute(cls, trace: Trace, steps: Steps) -> OptimizerWork:
        """Optimizer work. Raises Missing where the trace holds no optimizer rows."""
        raise Missing("this analysis is not written yet")
