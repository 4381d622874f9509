"""torch.profiler as windows use it. Imported after the script has imported torch."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import torch
import torch.profiler
from torch._C._profiler import _ExperimentalConfig

from .kineto_stderr import IMPORTED_ON, without_complaint

# Kineto's level above all of its messages.
SILENT = "99"


def make(*, memory: bool, host_alone: bool, first: bool) -> Any:
    """A profiler that records shapes; memory: allocations, too; host_alone: no device and no allocations.

    first: it is the first of this process that capture makes.
    """
    activities = [torch.profiler.ProfilerActivity.CPU]
    options: dict[str, Any] = {"record_shapes": True}
    if not host_alone:
        options["profile_memory"] = memory
        activities += _device_activities()
    options["experimental_config"] = _config(devices=len(activities) > 1)
    made = _Profile(activities=activities, **options)
    made.starts_kineto = first
    return made


class _Profile(torch.profiler._KinetoProfile):  # type: ignore[misc]
    """torch.profiler without its import of torch._inductor, which costs seconds in a script that compiles nothing."""

    starts_kineto = False

    def prepare_trace(self) -> None:
        with without_complaint(IMPORTED_ON) if self.starts_kineto else contextlib.nullcontext():
            self._prepare()

    def _prepare(self) -> None:
        if "torch._inductor" in sys.modules:
            super().prepare_trace()
            return
        self.profiler = torch.autograd.profiler.profile(
            use_cpu=True,
            use_device=self.use_device,
            record_shapes=self.record_shapes,
            profile_memory=self.profile_memory,
            use_kineto=True,
            experimental_config=self.experimental_config,
        )
        self.profiler._prepare_trace()


def _device_activities() -> list[Any]:
    """Activities of devices that the script itself has brought up; asking must not bring up one."""
    kinds = torch.profiler.ProfilerActivity
    found = []
    if torch.cuda.is_initialized():
        found.append(kinds.CUDA)
    xpu = getattr(torch, "xpu", None)
    if hasattr(kinds, "XPU") and xpu is not None and hasattr(xpu, "is_initialized") and xpu.is_initialized():
        found.append(kinds.XPU)
    supported = torch.profiler.supported_activities()
    return [one for one in found if one in supported]


def _config(*, devices: bool) -> Any:
    """Events as the file needs them, without an object of Python for each; on a device waits, too.

    Older torch has no such options.
    """
    options: dict[str, Any] = {"trace_only": True} if hasattr(_ExperimentalConfig, "trace_only") else {}
    if devices:  # torch before 2.1 has no synchronisation events
        options["enable_cuda_sync_events"] = True
    try:
        return _ExperimentalConfig(**options) if options else None
    except TypeError:
        return None
