"""What steps of a gate's loop do besides taking time: waits, CPU time and samples of all, ops of a few profiled ones.

The first cost a few readings of clocks; the second are counted in steps of their own, which no turn times.
"""

from __future__ import annotations

import sys
from time import process_time_ns
from types import FrameType
from typing import Any

from .collector import Collector
from .steps.parts import Parts

# Frames between the place that is told of a batch and the loader's `__next__`.
_NEAR = 6
_LOW = ("c10::BFloat16", "c10::Half")
# Names of what is counted; a name counts where it begins so.
_COUNTED = {
    "zeroed": ("aten::zero_", "aten::_foreach_zero_"),
    "reductions": ("c10d::allreduce", "c10d::reduce_scatter", "c10d::_allreduce"),
    "copied": ("aten::copy_",),
    "syncs": ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "hipStreamSynchronize"),
    "freed": ("cudaFree",),
}


class TurnCounts:
    """Sums over all turns that are over."""

    def __init__(self, parts: Parts, collector: Collector) -> None:
        self.parts = parts
        self.pauses = collector.pauses
        self.steps = 0
        self.samples = 0
        self.fetch_ns = 0
        self.cpu_ns = 0
        self._cpu_began_ns = 0
        self.gc_us = 0.0
        self._batch = 0
        self._samples = 0

    def begin(self) -> None:
        """A turn begins."""
        self.parts.on = True
        self.parts.cut()
        self.pauses.listen(True)
        self._samples, self._cpu_began_ns = 0, process_time_ns()

    def end(self, steps: int) -> None:
        """A turn of so many steps ends."""
        self.cpu_ns += process_time_ns() - self._cpu_began_ns
        self.pauses.listen(False)
        cut = self.parts.cut()
        self.parts.on = False
        self.fetch_ns += cut[0] if cut else 0
        self.gc_us = sum(self.pauses.us())
        self.samples += self._samples
        self.steps += steps

    def given(self) -> None:
        """A loader has a batch, which is a variable of a frame around this one."""
        frame: FrameType | None = sys._getframe(1)
        for _ in range(_NEAR):
            if frame is None:
                return
            if frame.f_code.co_name == "__next__" and "data" in frame.f_locals:
                self._batch = _samples(frame.f_locals["data"])
                return
            frame = frame.f_back

    def backward(self) -> None:
        """A backward pass begins: the last batch is trained on. Those of evaluations are followed by none."""
        self._samples += self._batch
        self._batch = 0

    def per_step(self) -> dict[str, float]:
        """Means of one step; empty before the first turn has ended."""
        if not self.steps:
            return {}
        sums = {
            "wait_us": self.fetch_ns / 1e3,
            "cpu_us": self.cpu_ns / 1e3,
            "gc_us": self.gc_us,
            "samples": float(self.samples),
        }
        return {name: value / self.steps for name, value in sums.items()}


def _samples(batch: Any) -> int:
    """The first dimension of the first tensor."""
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        return next((found for one in batch if (found := _samples(one))), 0)
    shape = getattr(batch, "shape", ())
    return int(shape[0]) if shape else 0


def profiler() -> Any:
    """Started; it notes ops with the types of their inputs, and kernels where there is a device."""
    import torch.profiler

    started = torch.profiler.profile(record_shapes=True)
    started.start()
    return started


def counted(running: Any, steps: int) -> dict[str, float]:
    """Stops the profiler; how often things happened in one step."""
    running.stop()
    found = dict.fromkeys(("ops", "kernels", "lowered", "double", *_COUNTED), 0)
    for event in running.profiler.kineto_results.events():
        name = event.name()
        on_device = str(event.device_type()).rpartition(".")[2] != "CPU"
        found["kernels"] += on_device
        if on_device:
            continue
        if name.startswith("aten::"):
            found["ops"] += 1
            types = event.dtypes()
            found["lowered"] += any(one in _LOW for one in types)
            found["double"] += "double" in types
        for counter, beginnings in _COUNTED.items():
            found[counter] += name.startswith(beginnings)
    return {name: count / steps for name, count in found.items()}
