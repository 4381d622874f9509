"""Collectives and point-to-point communication on the device."""

from __future__ import annotations

import re
from dataclasses import dataclass

from advisor.analyses.gpu_busy import GpuBusy
from advisor.analyses.steps import Steps
from advisor.computed import Missing
from advisor.model import OpRow
from advisor.trace.events import Mask, Trace
from advisor.trace.intervals import Intervals

# Kernel, op and annotation names of all eras and libraries. Short words need a border: "mpi" stands in "compile", too.
_COMMUNICATION = re.compile(
    r"nccl|rccl|oneccl|hccl|xccl|nvshmem|rocshmem|deep_?ep\b|dpsk::ep\b|(?:inter|intra)node::|multimem_"
    r"|(?:one|two)_shot_all_?reduce|cross_device_reduce|(?<![a-z])gloo|(?<![a-z])mpi[:_]|(?<![a-z])ccl::",
    re.IGNORECASE,
)


def is_communication(name: str) -> bool:
    """Whether a kernel, op or annotation of this name is communication between ranks."""
    return _COMMUNICATION.search(name) is not None


@dataclass(frozen=True, slots=True, eq=False)
class Communication:
    """Communication kernels inside the window W, and the part that no other kernel hides.

    rows           which events are communication kernels (all of the trace)
    union          union of them in W
    exposed        union minus the union of all other kernels: the device only communicates (late ranks included)
    share, exposed_share   of |W|
    us, exposed_us         µs per step
    calls          communication kernels per step
    bytes          payload per step, None where the trace does not state message sizes
    largest        the costliest kernels by name, per step, most expensive first
    """

    rows: Mask
    union: Intervals
    exposed: Intervals
    share: float
    exposed_share: float
    us: float
    exposed_us: float
    calls: float
    bytes: float | None
    largest: tuple[OpRow, ...]

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, busy: GpuBusy) -> Communication:
        """Communication of this rank; zero where there is none. Missing without device work."""
        raise Missing("this analysis is not written yet")
