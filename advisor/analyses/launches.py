"""Host calls that start device work, and how they compare with the work they start."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.analyses.gpu_busy import GpuBusy
from advisor.analyses.steps import Steps
from advisor.computed import Missing
from advisor.trace.events import Trace


@dataclass(frozen=True, slots=True, eq=False)
class Launches:
    """Launches and kernels of W, per step.

    per_step          host calls that start kernels or graphs
    launch_us         median host duration of such a call, 0 where there are none
    kernels_per_step  kernels, by the step of their launch, else of their start
    kernel_us         median duration of a kernel
    short_share       share of kernels shorter than 10 µs
    queue_delay_us    median time from the start of the launch call to the start of its kernel; None where unlinked
    graphs            kernels came from graph launches
    """

    per_step: float
    launch_us: float
    kernels_per_step: float
    kernel_us: float
    short_share: float
    queue_delay_us: float | None
    graphs: bool

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, busy: GpuBusy) -> Launches:
        """Launch statistics. Missing without device work."""
        raise Missing("this analysis is not written yet")
