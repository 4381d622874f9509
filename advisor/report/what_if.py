"""What another accelerator would do for the same step: kernels scaled by the roofline, the step replayed.

A kernel whose work is known and that comes near its device's roofline is scaled by the roofline of the other device for
the same work, with the error that such scaling had where it was measured. Any other kernel, and one that something else
holds back, is scaled between not at all and as much as the better of the two rates allows. Copies between host and
device and communication keep their time: they are of the machine, not of the device. Then the step is replayed, so
that a step whose host is the limit stays as long as its host needs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advisor.analyses.base.classify import communication_rows
from advisor.analyses.base.device import Device
from advisor.analyses.base.links import Links
from advisor.analyses.base.scale import Scale
from advisor.analyses.costs.replay import Replay
from advisor.analyses.work.kernel_work import KernelWork, WorkGroup, least_us
from advisor.analyses.work.matmuls import Matmuls
from advisor.computed import Computed, Missing
from advisor.constants import constant
from advisor.errors import UsageError
from advisor.hardware import Hardware, lookup, models
from advisor.model import WhatIf
from advisor.quantities import duration
from advisor.replay import edits
from advisor.replay.edits import Edit
from advisor.trace.events import Category, Floats, Ints, Trace

# Share of its roofline from which on a kernel is held to be limited by it.
_NEAR = constant("device.limited_share").value
# Error of a kernel's time that is scaled to another GPU.
_ERROR = constant("device.scaled_kernel_error").value
# Factors are rounded to this, so that kernels of like fate are one edit.
_STEP = 0.02
# Beyond this error of the unedited replay a replayed step is no more than a guess.
_TRUSTED_ERROR = 0.05
# A step that gets shorter by less than this has another limit than its device.
_NOTHING = 0.05


def known_device(name: str) -> Hardware:
    """The row of the hardware table for a name that a person gave. Raises UsageError where its rates are not known."""
    found = lookup(name)
    if found is None or found.fp32_tflops is None or found.bandwidth_gbs is None:
        listed = ", ".join(row.model for row in models())
        raise UsageError(f"--what-if-gpu {name}: its peak rates are not known; known GPUs: {listed}")
    return found


def on(computed: Computed, name: str) -> WhatIf:
    """What the step would take on that device; a sentence why not where it cannot be said."""
    other = known_device(name)
    try:
        return _scaled(computed, other)
    except Missing as reason:
        return WhatIf(device=other.model, message=f"The step time on {_a(other.model)} cannot be estimated: {reason}.")


def _scaled(computed: Computed, other: Hardware) -> WhatIf:
    device, scale = computed.get(Device), computed.get(Scale)
    if not device.measured:
        raise Missing(device.why)
    here = lookup(device.name, device.capability)
    if here is None or here.fp32_tflops is None or here.bandwidth_gbs is None:
        raise Missing(f"the rates of {device.name or 'the device of this trace'} are not known")
    replay = computed.get(Replay)
    if replay.error_share > _TRUSTED_ERROR:
        raise Missing(f"the replay of the unchanged step differs from its measured time by {replay.error_share:.0%}")
    work = computed.find(KernelWork)
    groups = work.groups if work else ()
    low, high = _edits(computed, here, other, groups)
    spans = [*replay.steps_after_us(low), *replay.steps_after_us(high)]
    least_us = min(replay.steps_after_us(_without(computed)))
    near = sum(group.us for group in groups if group.reached >= _NEAR)
    share = near / work.kernel_us if work and work.kernel_us else 0.0
    low_us, high_us = min(spans), max(spans)
    return WhatIf(
        device=other.model,
        low_us=low_us,
        high_us=high_us,
        known_share=share,
        host_us=least_us,
        message=_message(here, other, (low_us, high_us), scale.step_us, share, least_us),
    )


def _edits(
    computed: Computed, here: Hardware, other: Hardware, groups: Sequence[WorkGroup]
) -> tuple[list[Edit], list[Edit]]:
    """The device's work at the least and at the most that the other one would take for it."""
    trace, links = computed.get(Trace), computed.get(Links)
    factors = np.empty((len(trace.events), 2))
    factors[:] = _open(here, other, computed.find(Matmuls))
    for group in groups:
        factors[group.kernels] = _factors(group, other)
    rows = _work_of_device(trace, links)
    return (_as_edits(rows, factors[rows, 0]), _as_edits(rows, factors[rows, 1]))


def _work_of_device(trace: Trace, links: Links) -> Ints:
    """Kernels that are not communication, fills, and copies within the device."""
    events = trace.events
    kernels = events.of(Category.KERNEL) & ~communication_rows(events)
    inside = events.of(Category.MEMCPY) & events.named("DtoD")
    found: Ints = np.flatnonzero((kernels | inside | events.of(Category.MEMSET)) & links.inside)
    return found


def _factors(group: WorkGroup, other: Hardware) -> tuple[float, float]:
    """How many times as long these kernels take on the other device, least and most."""
    there = least_us(group.cost, group.precision, other)
    if there is None:
        return 0.0, 1.0
    ratio = there[0] / group.least_us
    if group.reached >= _NEAR:
        return ratio * (1 - _ERROR), ratio * (1 + _ERROR)
    # What holds these kernels back stays, or the other roofline becomes their limit.
    return min(ratio, 1.0), max(ratio * group.reached / _NEAR, 1.0)


def _open(here: Hardware, other: Hardware, matmuls: Matmuls | None) -> tuple[float, float]:
    """The range for work of which nothing is known: by memory or by arithmetic, or as long as now."""
    ratios = [(here.bandwidth_gbs or 1.0) / (other.bandwidth_gbs or 1.0)]
    formats = [name for name, us in matmuls.by_precision.items() if us > 0] if matmuls else ["fp32"]
    for name in formats:
        mine, theirs = here.tflops(name), other.tflops(name)
        if mine and theirs:
            ratios.append(mine / theirs)
    return min(*ratios, 1.0), max(*ratios, 1.0)


def _as_edits(rows: Ints, factors: Floats) -> list[Edit]:
    """One edit for each rounded factor."""
    rounded = np.round(factors / _STEP).astype(np.int64)
    return [edits.scale(rows[rounded == one], float(one) * _STEP) for one in np.unique(rounded)]


def _without(computed: Computed) -> list[Edit]:
    """No device takes less than no time at all: what is left is the host's and the machine's."""
    return [edits.scale(_work_of_device(computed.get(Trace), computed.get(Links)), 0.0)]


def _message(
    here: Hardware, other: Hardware, step: tuple[float, float], now_us: float, share: float, least_us: float
) -> str:
    """The range, what limits it, and how much of it is known."""
    low, high = duration(step[0]), duration(step[1])
    span = f"{low} to {high}" if low != high else f"about {low}"
    said = f"On {_a(other.model)} instead of {_a(here.model)} this step would take {span} (now {duration(now_us)})"
    if step[1] < (1 + _NOTHING) * now_us and least_us > (1 - _NOTHING) * now_us:
        return f"{said}: it is limited by the host (data loading, launches, waits), so no device shortens it."
    if least_us > 0.5 * step[0] and step[0] < now_us:
        said += f"; {duration(least_us)} of it does not depend on the device"
    near = f"{share * 100:.0f} % of the kernel time is scaled by what limits it, compute or memory bandwidth"
    return f"{said}. {near}; the rest may stay as it is or scale with either."


def _a(model: str) -> str:
    """The name with its article: letters are spelled out."""
    return f"{'an' if model[0] in 'AHLMR' else 'a'} {model}"
