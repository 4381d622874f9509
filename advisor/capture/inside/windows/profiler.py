"""torch.profiler as windows use it. Imported after the script has imported torch."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import torch
import torch.profiler

from .kineto_stderr import without_complaint

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
        if len(activities) > 1:
            options["experimental_config"] = _sync_events()
    made = _Profile(activities=activities, **options)
    made.starts_kineto = first
    return made


class _Profile(torch.profiler._KinetoProfile):  # type: ignore[misc]
    """torch.profiler without its import of torch._inductor, which costs seconds in a script that compiles nothing."""

    starts_kineto = False

    def prepare_trace(self) -> None:
        with without_complaint() if self.starts_kineto else contextlib.nullcontext():
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


def _sync_events() -> Any:
    """Synchronisation events make waits visible; torch before 2.1 has no such option."""
    from torch._C._profiler import _ExperimentalConfig

    try:
        return _ExperimentalConfig(enable_cuda_sync_events=True)
    except TypeError:
        return None
