"""Every metric of a report, each measured or *not measured*, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from advisor.analyses.base.device import Device
from advisor.analyses.base.gpu_busy import GpuBusy
from advisor.analyses.base.scale import Scale
from advisor.analyses.communication.communication import Communication
from advisor.analyses.step.copies import Copies
from advisor.analyses.step.counters import Counters
from advisor.analyses.step.input_wait import InputWaits
from advisor.analyses.step.launches import Launches
from advisor.analyses.step.memory import PeakMemory
from advisor.analyses.step.ops import Ops
from advisor.analyses.step.optimizer_work import OptimizerWork
from advisor.analyses.step.rates import Rates
from advisor.analyses.step.syncs import Syncs
from advisor.analyses.work.matmuls import Matmuls
from advisor.analyses.work.model_flops import Utilisation
from advisor.computed import Computed, Missing
from advisor.model import Metric, Unit


class Definition(Struct, frozen=True):
    """A metric: what it is called, in what unit, and how it is read off an analysis.

    source  the analysis it comes from; where that is Missing, the metric is not measured for the same reason
    read    analysis -> value; None where the analysis itself does not know
    why     analysis -> reason for a None
    device  whether it speaks of the device: without device work it is not measured, for the device's own reason
    about   one line for glossaries
    """

    id: str
    unit: Unit
    source: type
    read: Callable[[Any], float | None]
    about: str
    why: Callable[[Any], str] = lambda analysis: "the trace does not record it"
    device: bool = False


def _definitions() -> Iterator[Definition]:
    yield Definition(
        "step_time_us",
        "us",
        Scale,
        lambda a: a.step_us,
        "median time of a step, without the profiler if captured; of a trace whose steps differ the mean",
    )
    yield from _of_device()
    yield Definition(
        "input_wait_share",
        "share",
        InputWaits,
        lambda a: a.share,
        "the training loop waits for its loader and the device is idle",
    )
    yield Definition(
        "fp32_matmul_share",
        "share",
        Matmuls,
        lambda a: a.fp32_share,
        "matmuls, convolutions and attention in fp32 without TF32, of device-busy time (of the step on a CPU)",
        lambda a: a.why,
    )
    yield Definition("cpu_ops", "count", Ops, lambda a: a.per_step, "CPU ops per step", lambda a: a.why)
    yield from _of_counters()
    yield Definition(
        "optimizer_steps_per_step", "ratio", OptimizerWork, lambda a: a.calls, "optimizer steps per step of the loop"
    )
    yield Definition("peak_memory_bytes", "bytes", PeakMemory, lambda a: a.bytes, "peak device memory held by tensors")
    yield Definition(
        "mfu", "share", Utilisation, lambda a: a.share, "the model's operations per second over the device's peak"
    )
    yield Definition(
        "samples_per_second",
        "per_second",
        Rates,
        lambda a: a.samples_per_second,
        "batch size divided by the mean step time",
        lambda a: a.why["samples_per_second"],
    )


def _of_device() -> Iterator[Definition]:
    busy = "share of time with at least one kernel, copy or memset running"
    yield Definition("device_busy_share", "share", GpuBusy, lambda a: a.share, busy, device=True)
    yield Definition("device_idle_share", "share", GpuBusy, lambda a: 1 - a.share, "1 - device_busy_share", device=True)
    for name, about in (("share", "communication kernels run"), ("exposed_share", "and no other kernel overlaps")):
        metric = "communication_share" if name == "share" else "exposed_communication_share"
        yield Definition(metric, "share", Communication, _field(name), f"share of time in which {about}", device=True)
    yield Definition(
        "exposed_copy_share", "share", Copies, lambda a: a.exposed_share, "copies with no kernel running", device=True
    )
    for name, about in (
        ("h2d_bytes", "bytes copied to the device per step"),
        ("h2d_pageable_bytes", "those copied from pageable memory"),
        ("d2h_bytes", "bytes copied from the device per step"),
    ):
        yield Definition(name, "bytes", Copies, _field(name), about, device=True)
    yield Definition("copies", "count", Copies, lambda a: a.calls, "device memory copies per step", device=True)
    yield Definition("kernels", "count", Launches, lambda a: a.kernels_per_step, "kernels per step", device=True)
    yield Definition(
        "launches",
        "count",
        Launches,
        lambda a: a.per_step,
        "host calls that launch kernels or graphs, per step",
        device=True,
    )
    yield Definition("syncs", "count", Syncs, lambda a: a.count, "blocking host calls per step", device=True)


def _of_counters() -> Iterator[Definition]:
    for name, about, device in (
        ("device_allocs", "cudaMalloc or hipMalloc calls per step", True),
        ("collectives", "collectives started per step", False),
        ("recompiles", "torch.compile compilations per step", False),
    ):
        yield Definition(name, "count", Counters, _field(name), about, _reason(name), device)


def _field(name: str) -> Callable[[Any], float | None]:
    return lambda analysis: getattr(analysis, name)


def _reason(name: str) -> Callable[[Any], str]:
    return lambda analysis: analysis.why.get(name, "the trace does not record it")


DEFINITIONS: tuple[Definition, ...] = tuple(_definitions())


def measure(computed: Computed) -> dict[str, Metric]:
    """Every metric of this trace, by id."""
    return {definition.id: _measure(definition, computed) for definition in DEFINITIONS}


def _measure(definition: Definition, computed: Computed) -> Metric:
    device = computed.get(Device)
    if definition.device and not device.measured:
        return _not_measured(definition, device.why)
    try:
        analysis: Any = computed.get(definition.source)
    except Missing as reason:
        return _not_measured(definition, str(reason))
    value = definition.read(analysis)
    if value is None:
        return _not_measured(definition, definition.why(analysis))
    return Metric(definition.id, float(value), definition.unit)


def _not_measured(definition: Definition, why: str) -> Metric:
    return Metric(definition.id, None, definition.unit, "not_measured", why)
